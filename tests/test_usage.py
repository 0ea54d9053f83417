"""Wrong use, command by command: one line that says what is wrong, exit code 2, and nothing is left behind."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from string import Template

import pytest

from millrace import cli
from tests.support.commands import assert_light
from tests.support.datasets import written
from tests.support.exports import Flaw, write_export
from tests.support.image_files import IMAGES, write_folders

SHORT = {
    "HERE": __file__,
    "JOB": "--schema s.yaml --input a.csv --output out",
    "APPEND": "--append_to out --input a.csv",
    "BULK": "--saved_model m --input a.csv --output out",
    "STUDY": "--data_dir nowhere --study study",
    "GOOD": "--space dropout=float:0:0.5",
    "DATA": "--data_dir d",
    "MACHINES": "vertex --project p --region us-central1 --image us-docker.pkg.dev/p/r/millrace:1",
    "VERTEX": "vertex --project p --region us-central1",
    "IMAGE": "--image us-docker.pkg.dev/p/r/millrace:1",
    "TRAIN": "train --data_dir gs://b/data --model_dir gs://b/model",
    "CLOUD_DATA": "train --data_dir gs://b/data",
    "ON_DISK": "train --data_dir data --model_dir model",
}
USES = [
    # preprocess
    ("preprocess", "required: --schema, --input, --output"),
    ("preprocess $JOB --num_shards 0", "--num_shards 0: must be 1 or more"),
    ("preprocess $JOB --workers 2 --runner PrismRunner", "--workers 2: is for the default runner. On PrismRunner"),
    ("preprocess $APPEND --workers 2 --runner PrismRunner", "--workers 2: is for the default runner"),
    ("preprocess --replay r --append_to o --skip_known", "--skip_known: not with --replay"),
    ("preprocess $APPEND --dry_run", "--dry_run: tries a job with --schema and --output; leave it out"),
    ("preprocess $JOB --num_shards two", "Invalid value for --num_shards: two is not a whole number"),
    ("preprocess $JOB --num_shards 2 --shard_size_mb 3", "--num_shards 2 and --shard_size_mb 3: give one of them"),
    ("preprocess $JOB --shard_size_mb 0", "must be more than 0"),
    ("preprocess $JOB --max_reject_fraction 1.5", "must be from 0 to 1"),
    ("preprocess $JOB --max_input_ratio 0", "--max_input_ratio 0: must be more than 0"),
    (
        "preprocess $JOB --input hdfs://b/x.csv",
        "--input hdfs://b/x.csv: unsupported address; use a local path or gs://",
    ),
    (
        "preprocess --schema s.yaml --input a.csv --output hdfs://b/out",
        "--output hdfs://b/out: unsupported address; use a local path or gs://",
    ),
    (
        "preprocess --schema s.yaml --input a.csv --output gs:/b/out",
        "--output gs:/b/out: not a bucket URL; did you mean gs://b/out?",
    ),
    (
        "preprocess --schema s.yaml --input a.csv --output s3://b/out",
        "--output s3://b/out: Amazon S3 is not supported; use a local path or gs://.",
    ),
    ("preprocess $JOB --start_timeout -1", "--start_timeout -1.0: must be 0 or more"),
    ("preprocess $JOB --start_timeout nan", "--start_timeout nan: must be 0 or more"),
    ("preprocess $JOB --compression zip", 'Invalid value "zip" for --compression. Choose from: "none", "gzip".'),
    ("preprocess $JOB --preprocessing_fn module", "must be package.module:function"),
    ("preprocess $JOB --preprocessing_fn a:b --transform_from o", "give only one"),
    ("preprocess $JOB --runner DataflowRuner", "unknown runner; did you mean DataflowRunner?"),
    ("preprocess $JOB --overwite", "did you mean --overwrite?"),
    ("preprocess --append_to out", "--input"),
    ("preprocess --skip_known --input a.csv", "--append_to"),
    ("preprocess $APPEND --schema s.yaml", "--schema: not with --append_to"),
    ("preprocess $APPEND --no_statistics", "--no_statistics: not with --append_to"),
    ("preprocess $APPEND --no_wait", "--no_wait: not with --append_to"),
    ("preprocess --append_to none --input a.csv", "--append_to none: no manifest.json"),
    ("preprocess $APPEND --max_rejects -1", "--max_rejects -1: must be 0 or more"),
    ("preprocess $JOB --range_mb inf", "--range_mb inf: must be more than 0, and finite"),
    ("compare out a.csv --max_input_ratio inf", "--max_input_ratio inf: must be more than 0, and finite"),
    # batch-predict
    ("batch-predict $BULK --shard_size_mb nan", "--shard_size_mb nan: must be more than 0"),
    ("batch-predict $BULK --pass_through a,b,a", "'a' is named twice"),
    ("batch-predict $BULK --pass_through a,,b", "a name is empty"),
    ("batch-predict $BULK --runner DataflowRunner --region r", "--project: missing"),
    ("batch-predict $BULK --pass_trough a", "--pass_trough: unknown option; did you mean --pass_through?"),
    # predict, serve, train: no number at all
    ("predict --model_dir m --input a.csv --max_input_ratio inf", "--max_input_ratio inf: must be more than 0, and"),
    ("serve --model_dir m --max_body_mb inf", "--max_body_mb inf: must be more than 0, and finite"),
    # a misspelt flag, whatever else is missing
    ("preprocess --ouput out", "--ouput: unknown option; did you mean --output?"),
    ("$ON_DISK --learning_rate 0.1", "--learning_rate: unknown option; did you mean --hparams learning_rate?"),
    ("$ON_DISK --lr 0.1", "--lr: unknown option; did you mean --hparams learning_rate?"),
    ("$ON_DISK --steps 10", "--steps: unknown option; did you mean --max_steps?"),
    ("$ON_DISK -epochs 3", "-epochs: unknown option; did you mean --epochs?"),
    ("init a.csv --target y", "--target: unknown option; did you mean --label?"),
    ("tune $STUDY $GOOD --dropout=0.1", "--dropout: unknown option; did you mean --hparams dropout?"),
    ("train --data out", "--data: unknown option; did you mean --data_dir?"),
    ("predict --model m --input a.csv --output b", "--model: unknown option; did you mean --model_dir?"),
    ("serve --model_dir m --prot 8000", "--prot: unknown option; did you mean --port?"),
    ("submit local --augment --data_dir d", "--augment: unknown option; did you mean -- train --augment?"),
    ("submit local --data_dir d", "--data_dir: unknown option; did you mean -- train --data_dir?"),
    ("schema titanik", 'Invalid value "titanik" for NAME. Choose from: "cats_dogs"'),
    ("dataset shwo out", 'Unknown command "shwo". Did you mean "show"? Available commands: verify, show'),
    # words and flags where none belong
    ("serve model", "required: --model_dir; unexpected argument: model"),
    ("train data model", "required: --data_dir, --model_dir; unexpected argument: data"),
    ("train --data_dir my folder --model_dir m", "folder: unexpected argument; quote a name with spaces"),
    ("preprocess $JOB folder --region r", "folder: unexpected argument; quote a name with spaces"),
    ("$ON_DISK --no_report true", "true: unexpected argument; quote a name with spaces, and give no value to a switch"),
    ("preprocess a.csv", "required: --schema, --input, --output; unexpected argument: a.csv"),
    ("init nowhere.csv $HERE", "nowhere.csv: no such file\n"),
    ("--input a.csv", 'Unknown command "--input". Available commands: samples, init'),
    # dataset
    ("dataset verify", "required: --data_dir"),
    ("dataset verify /nowhere/at/all", "/nowhere/at/all: no such folder"),
    ("dataset verify /tmp --threads 0", "--threads 0: must be 1 or more"),
    ("dataset prune /tmp --al", "--al: unknown option; did you mean --all?"),
    # samples
    ("samples covertype x.csv --drift 1.5", "--drift 1.5: must be 0 to 1"),
    ("samples covertype x.csv --drift nan", "--drift nan: must be 0 to 1"),
    ("samples census x.csv --drift 1", "--drift is for covertype, not for census"),
    ("samples titanik x.csv", 'Invalid value "titanik" for NAME. Choose from: "census", "covertype"'),
    ("samples census", "required: OUTPUT"),
    ("samples census x.csv --rows 0", "--rows must be 1 or more"),
    ("samples census x.csv --seed -1", "--seed 0 or more"),
    # tune
    ("tune $STUDY", "required: --space"),
    ("tune $STUDY --space", "Parameter --space requires at least 1 element. Got 0."),
    ("tune $STUDY --space deterministic=categorical:true:false", "a trial with true would end with: true: unexpected"),
    ("tune $STUDY $GOOD --hparams dropout=0.1", "would end with: --hparams: dropout is given twice"),
    ("tune $STUDY $GOOD --model_dir m", "--model_dir: unknown option; did you mean --study?"),
    ("tune $STUDY $GOOD --model dn", "--model dn: unknown model; choose from linear, dnn"),
    ("tune $STUDY $GOOD --strategy parameter_server", "--strategy parameter_server: a trial is one process"),
    ("tune --data_dir d $GOOD --study gs://b/study", "--study gs://b/study: must be on local disk"),
    ("tune --data_dir d $GOOD --study a[0]", "--study a[0]: TensorFlow takes [0] for a pattern"),
    ("tune $STUDY $GOOD --profile", "--profile: measures one training, not a study; give it to `millrace train`"),
    ("tune $STUDY $GOOD", "nowhere"),
    # train
    ("$ON_DISK --profile --strategy mirrored", "--profile: measures a training on one device; leave out --strategy"),
    ("$ON_DISK --profile --tpu cpu", "--profile: measures a training on one device; leave out --tpu cpu, or --profile"),
    ("$ON_DISK --profile --model boosted_trees", "--profile: is for models that train in steps, but boosted_trees is"),
    # submit
    ("submit local", "expected the training after --, such as -- train --data_dir ... --model_dir ...; found nothing"),
    ("submit local -- preprocess", "expected the training after --"),
    ("submit local -- train --model_dir m", "required: --data_dir"),
    ("submit local -- $ON_DISK --max_step 1", "--max_step: unknown option; did you mean --max_steps?"),
    ("submit local -- $ON_DISK --model dn", "--model dn: unknown model; choose from linear, dnn"),
    ("submit local -- $ON_DISK --model tabular --hparams deep=3", "model 'tabular' has no hyper-parameter 'deep'"),
    ("submit local -- $ON_DISK --json", "--json: stands before --"),
    ("submit local -- $ON_DISK --help", "see millrace train --help"),
    (
        "submit local --workers 2 -- $ON_DISK",
        "--workers 2: nobody would hold the variables that workers share; add --ps 1",
    ),
    ("submit local --ps -1 -- $ON_DISK", "--ps -1: must be 0 or more"),
    ("submit local -- $ON_DISK --strategy parameter_server", "--strategy parameter_server: TF_CONFIG names no cluster"),
    ("submit local --ps 1 -- $ON_DISK --strategy mirrored", "--strategy mirrored: replicas on one machine, but"),
    ("submit local --env A -- $ON_DISK", "--env A: expected KEY=VALUE"),
    ("submit local --env TF_CONFIG={} -- $ON_DISK", "--env TF_CONFIG=...: is set for each process"),
    ("submit local --env A=1 A=2 -- $ON_DISK", "--env A=2: A is given twice"),
    (
        "submit local --job_name 'My job' -- $ON_DISK",
        "--job_name My job: expected a letter, then letters, digits and hyphens",
    ),
    ("submit vertex -- $TRAIN", "required: --project, --region"),
    (
        "submit $VERTEX -- $TRAIN",
        "--image: missing; the machines need an image with this package: docker/worker",
    ),
    ("submit $MACHINES --output_dir here -- $TRAIN", "--output_dir here: must be in a bucket"),
    (
        "submit $MACHINES -- $ON_DISK",
        "--data_dir data: the machines of Vertex AI have disks of their own; use a folder in a",
    ),
    (
        "submit $MACHINES -- $CLOUD_DATA --model_dir m",
        "--model_dir m: the machines of Vertex AI have disks of their own",
    ),
    ("submit $MACHINES -- $CLOUD_DATA", "required: --model_dir"),
    ("submit $MACHINES -- $TRAIN --warm_start_from m", "--warm_start_from m: the machines of Vertex AI"),
    ("submit $MACHINES -- $TRAIN --hparams path=m.keras", "--hparams path m.keras: the machines of Vertex AI"),
    (
        "submit $MACHINES --accelerator NVIDIA_L4 -- $TRAIN",
        "--accelerator NVIDIA_L4: expected TYPE:N, such as NVIDIA_L4:1",
    ),
    ("submit $MACHINES --disk_gb 10 -- $TRAIN", "--disk_gb 10: must be 100 or more"),
    ("submit $MACHINES --timeout_hours 0 -- $TRAIN", "--timeout_hours 0: must be more than 0, and finite"),
    ("submit $MACHINES --env 1A=x -- $TRAIN", "--env 1A=...: not a valid name of an environment variable"),
    ("submit $MACHINES --env AIP_MODEL_DIR=x -- $TRAIN", "--env AIP_MODEL_DIR=...: is set for each process"),
    ("submit kubernetes -- $TRAIN", "--image: missing; the containers need an image with this package"),
    (
        "submit kubernetes $IMAGE -- $ON_DISK",
        "--data_dir data: the containers have disks of their own, and there is no --volume",
    ),
    ("submit kubernetes $IMAGE --volume c=/mnt -- $ON_DISK", "--data_dir data: must be in a bucket, or below /mnt"),
    ("submit kubernetes $IMAGE --volume mnt -- $TRAIN", "--volume mnt: expected CLAIM=DIR, such as data=/mnt/data"),
    ("submit kubernetes $IMAGE --restarts -1 -- $TRAIN", "--restarts -1: must be 0 or more"),
]
SPACES = [
    ("dropout", "--space dropout: '' is not a kind of values; expected NAME=float:MIN:MAX"),
    ("dropout=double:0:1", "--space dropout=double:0:1: 'double' is not a kind of values; expected NAME=float:MIN:MAX"),
    ("dropout=float:0", "--space dropout=float:0: '' is not a number; expected NAME=float:MIN:MAX"),
    ("dropout=float:0:0.5:lg", "--space dropout=float:0:0.5:lg: 'lg' after MAX is not log"),
    ("dropout=float:0:x", "--space dropout=float:0:x: 'x' is not a number"),
    ("dropout=float:0:inf", "'inf' is not a number"),
    ("batch_size=int:8:9.5", "--space batch_size=int:8:9.5: '9.5' is not a whole number"),
    ("dropout=float:0.5:0.1", "`low <= high` must hold, but got (low=0.5, high=0.1)"),
    ("dropout=float:0:0.5:log", "`low > 0` must hold for `log=True`, but got (low=0.0"),
    ("dropout=float:0:1 --space dropout=float:0:0.5", "--space dropout=float:0:0.5: dropout is given twice"),
    ("drop=float:0:1", "--space drop: a trial with 0 would end with: --hparams: model 'tabular' has no"),
    ("dropout=float:0:1", "--space dropout: a trial with 1 would end with: --hparams of model 'dnn': dropout=1.0"),
    ("hidden_units=categorical:64:a", "a trial with a would end with: --hparams hidden_units=a"),
    ("model_dir=categorical:a:b", "--space model_dir: must be the same for all trials of a study"),
    ("best_metric=categorical:auc:loss", "--space best_metric: must be the same for all trials of a study"),
    ("dropout=float:0:0.5 --search grid", "--search grid: dropout is a range of floats, which has no grid"),
]
USES += [(f"tune $STUDY --space {space}", message) for space, message in SPACES]


def words(line: str) -> list[str]:
    return shlex.split(Template(line).substitute(SHORT))


@pytest.mark.parametrize(
    ("line", "message"), USES, ids=[f"{line.split()[0]}: {message[:60]}" for line, message in USES]
)
def test_a_mistake_is_answered_in_one_line(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AIP_MODEL_DIR", raising=False)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")  # who asks a bucket gets another error
    assert cli.main(words(line)) == 2
    error = capsys.readouterr().err
    assert Template(message).safe_substitute(SHORT) in error
    (only,) = (error_line for error_line in error.splitlines() if not error_line.startswith("See "))
    assert only.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


CSV = "--schema csv/schema.yaml --input csv/day1.csv"
ON_FILES = [
    ("train --data_dir csv/data --model_dir csv/data", "--model_dir csv/data: holds a dataset; use another folder"),
    ("train --data_dir csv/data --model_dir csv/data/m", "/csv/data, which holds a dataset; use another folder"),
    ("train --data_dir csv/data --model_dir m --promote_to csv/data/m", "--promote_to csv/data/m: lies in"),
    ("train --data_dir csv/data --model_dir m --model squeezenext", "'squeezenext' reads images; for rows use"),
    ("train --data_dir csv/data --model_dir csv/day1.csv/m", "csv/day1.csv is not a writable folder (Not a directory)"),
    ("train --data_dir csv/data --model_dir m --best_metric acuracy", "; did you mean accuracy? it has accuracy, "),
    ("tune --data_dir csv/data --study s $GOOD --model dnn --best_metric acuracy", "; did you mean accuracy? it has "),
    ("tune --data_dir csv/data --study csv/data/s $GOOD --model dnn", "--study csv/data/s: lies in"),
    (
        "tune --data_dir csv/data --study s --space hidden_units=categorical:8:16 --quiet",
        "model 'tabular' has no hyper-parameter 'hidden_units'",
    ),
    (
        "tune --data_dir csv/data --study s --space learning_rate=categorical:1:2 --model squeezenext",
        "reads images; for rows",
    ),
    (f"preprocess {CSV} --output csv/data/more", "--output csv/data/more: lies in"),
    (f"preprocess {CSV} --output csv/model/more", "/csv/model, which holds a model; use another folder"),
    (
        f"preprocess {CSV} --output csv/predictions/more",
        "csv/predictions, which holds predictions",
    ),
    ("batch-predict --saved_model $EXPORT --input csv/day1.csv --output csv/data/more", "which holds a dataset"),
    ("promote --from $EXPORT --to csv/data", "csv/data: holds a dataset; use another folder"),
    ("predict --model_dir images/model --input csv/day1.csv", "day1.csv: not an image: its first bytes are"),
    ("batch-predict --saved_model $IMAGES --input csv/day1.csv --output new", "day1.csv: not an image"),
    ("preprocess --schema images/schema.yaml --input csv/day1.csv --output new", "day1.csv: not an image"),
    ("init text.jpg", "text.jpg: not an image: its first bytes are b'some,tex'"),
    ("preprocess --schema csv/day1.csv --input csv/day2.csv --output new", "csv/day1.csv: is a table by its name"),
    ("preprocess --schema csv/schema.yaml --input empty.csv --output new", "empty.csv: the input contains no records"),
    ("predict --model_dir csv/model --input header.csv", "header.csv: the input contains no records"),
    ("preprocess --schema csv/schema.yaml --input bytes.csv --output new", r"b'\xff\x01\xff\x01"),
    (
        "predict --model_dir csv/model --input csv/day1.csv --output csv/day2.csv/p",
        "csv/day2.csv is not a writable folder",
    ),
]

TAKE_EXPORTS = [  # a line with a mistake that is found after the export
    ("predict --model_dir $PATH --input header.csv", "header.csv: the input contains no records"),
    ("predict --saved_model $PATH --input header.csv", "header.csv: the input contains no records"),
    ("batch-predict --model_dir $PATH --input no.csv --output new", "no.csv: no such file"),
    ("batch-predict --saved_model $PATH --input no.csv --output new", "no.csv: no such file"),
    ("evaluate --data_dir csv/data --model_dir $PATH --slice_by no", "--slice_by no: no feature 'no'"),
    ("evaluate --data_dir csv/data --model_dir csv/model --saved_model $PATH --slice_by no", "no feature 'no'"),
    ("evaluate --data_dir csv/data --model_dir csv/model --compare_with $PATH --slice_by no", "no feature 'no'"),
    ("verify --data_dir images/data --saved_model $PATH", "give the dataset that it was trained on"),
    ("promote --from $PATH --to new --data_dir csv/data --metric no", "no: is not a metric of this label"),
    ("serve --model_dir $PATH --port 0 --store csv/data", "which is no part of a store"),
]
EXPECTED = "expected a model directory, an export, or a folder of exports whose names are numbers"
NO_EXPORTS = {
    "nowhere": f"nowhere: no such folder; {EXPECTED}",
    "csv/data": f"csv/data: holds a dataset; {EXPECTED}",
    "csv/store": f"csv/store: holds no export; {EXPECTED}",
    "csv/day1.csv": f"csv/day1.csv: holds no export; {EXPECTED}",
    "untrained": "untrained: has no export; let the training end, or give another folder",
    "hdfs://b/m": "hdfs://b/m: unsupported address; use a local path or gs://, and copy other data there first",
}


@pytest.fixture(scope="module")
def files(parcels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "files"
    shutil.copytree(parcels, folder / "csv")
    for day in ("day1.csv", "day2.csv"):
        shutil.copy(parcels / "raw.csv", folder / "csv" / day)
    write_folders(folder / "images" / "raw", per_class=3)
    written(folder / "images", IMAGES, f"{folder}/images/raw/*/*", output=str(folder / "images" / "data"))
    write_export(folder / "images" / "model" / "export" / "best", 1_000_000_000, Flaw(schema=IMAGES))
    for name, data in {
        "text.jpg": b"some,text\n",
        "csv/store/requests.csv": b"id\n",
        "csv/predictions/manifest.json": b'{"kind": "predictions", "format_version": 1}',
        "untrained/model.json": (folder / "csv" / "model" / "model.json").read_bytes(),
        "empty.csv": b"",
        "header.csv": (folder / "csv" / "day1.csv").read_bytes().partition(b"\n")[0],
        "bytes.csv": b"\xff\x01" * 9,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("line", "message"), ON_FILES, ids=[f"{line.split()[0]}: {message[:60]}" for line, message in ON_FILES]
)
def test_a_mistake_with_files_is_answered_before_anything_is_done(
    line: str, message: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setitem(SHORT, "EXPORT", *map(str, Path("csv/model/export/best").glob("1*")))
    monkeypatch.setitem(SHORT, "IMAGES", *map(str, Path("images/model/export/best").glob("1*")))
    before = sorted(files.rglob("*"))
    assert cli.main(words(line)) == 2
    (only,) = (error_line for error_line in capsys.readouterr().err.splitlines() if not error_line.startswith("note: "))
    assert only.startswith("error: ")
    assert message in only
    assert sorted(files.rglob("*")) == before


@pytest.mark.parametrize("path", [*NO_EXPORTS, "csv/model", "csv/model/export", "csv/model/export/best/", "$EXPORT"])
@pytest.mark.parametrize(("line", "later"), TAKE_EXPORTS, ids=[line.split(" $")[0] for line, _ in TAKE_EXPORTS])
def test_every_command_takes_the_same_paths_of_an_export(
    line: str, later: str, path: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setitem(SHORT, "EXPORT", *map(str, Path("csv/model/export/best").glob("1*")))
    assert cli.main(words(line.replace("$PATH", path))) == 2
    error = capsys.readouterr().err
    assert NO_EXPORTS.get(path, later) in error
    assert error.count("error: ") == 1


@pytest.mark.parametrize(
    ("module", "line", "message"),
    [
        ("millrace.tune.command", "--data_dir d --study s --space dropout=float:0:1", "a trial with 1 would end with"),
        ("millrace.submit", "$MACHINES -- $TRAIN --max_steps 0", "--max_steps 0: must be 1 or more"),
    ],
)
def test_a_mistake_is_answered_before_anything_heavy_is_imported(module: str, line: str, message: str) -> None:
    assert_light(module, words(line), code=2, message=message)
