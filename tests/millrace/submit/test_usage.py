"""Mistakes in how a training is submitted: one line each and exit code 2, before anything is staged or started."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.cli import main
from tests.support.light_commands import assert_light

TRAIN = ["train", "--data_dir", "gs://b/data", "--model_dir", "gs://b/model"]
ON_DISK = ["train", "--data_dir", "data", "--model_dir", "model"]
VERTEX = ["vertex", "--project", "p", "--region", "us-central1", "--staging_bucket", "gs://b/s", "--any_region"]
IMAGE = ["--image", "us-docker.pkg.dev/p/r/millrace:1"]
STUDY = [*VERTEX, *IMAGE, "--output_dir", "gs://b/study"]
TUNE = ["--tune", "dropout=double:0:0.5"]
METRIC = [*TRAIN[:3], "--best_metric", "accuracy"]

CASES = [
    # what is trained
    (["local"], None, "expected the training after --, such as -- train --data_dir ... --model_dir ...; found nothing"),
    (["local"], ["preprocess"], "expected the training after --"),
    (["local"], ["train", "--model_dir", "m"], "the following arguments are required: --data_dir"),
    (["local"], [*ON_DISK, "--max_step", "1"], "unrecognized arguments: --max_step 1"),
    (["local"], [*ON_DISK, "--max_steps", "0"], "--max_steps 0: must be 1 or more"),
    (["local"], [*ON_DISK, "--model", "dn"], "--model dn: unknown model; choose from linear, dnn"),
    (["local"], [*ON_DISK, "--hparams", "depth=3"], "model 'dnn' has no hyper-parameter 'depth'"),
    (["local"], [*ON_DISK, "--json"], "--json: stands before --"),
    (["local"], [*ON_DISK, "--help"], "see millrace train --help"),
    # how many processes
    (
        ["local", "--workers", "2"],
        ON_DISK,
        "--workers 2: nobody would hold the variables that workers share; add --ps 1, or train with --strategy",
    ),
    (
        ["local", "--workers", "1", "--ps", "1"],
        [*ON_DISK, "--strategy", "multi_worker"],
        "--strategy multi_worker: TF_CONFIG names chief, ps, worker; expected a cluster of chief and worker",
    ),
    (["local", "--ps", "-1"], ON_DISK, "--ps -1: must be 0 or more"),
    (
        ["local"],
        [*ON_DISK, "--strategy", "parameter_server"],
        "--strategy parameter_server: TF_CONFIG names no cluster",
    ),
    (["local", "--ps", "1"], [*ON_DISK, "--strategy", "mirrored"], "--strategy mirrored: replicas on one machine, but"),
    (
        [*VERTEX, *IMAGE],
        [*TRAIN, "--strategy", "multi_worker"],
        "--strategy multi_worker: TF_CONFIG names no cluster",
    ),
    (["local", "--env", "A"], ON_DISK, "--env A: expected KEY=VALUE"),
    (["local", "--env", "TF_CONFIG={}"], ON_DISK, "--env TF_CONFIG=...: is set for each process"),
    (["local", "--env", "A=1", "A=2"], ON_DISK, "--env A=2: A is given twice"),
    (
        ["local", "--job_name", "My job"],
        ON_DISK,
        "--job_name My job: expected a letter, then letters, digits and hyphens",
    ),
    # Vertex AI
    (["vertex"], TRAIN, "the following arguments are required: --project, --region, --staging_bucket"),
    (VERTEX, TRAIN, "--image: missing; the machines need an image with the pinned dependencies: docker/worker"),
    ([*VERTEX, *IMAGE, "--staging_bucket", "here"], TRAIN, "--staging_bucket here: must be in a bucket"),
    ([*VERTEX, *IMAGE, "--output_dir", "here"], TRAIN, "--output_dir here: must be in a bucket"),
    (
        [*VERTEX, *IMAGE],
        ON_DISK,
        "--data_dir data: the machines of Vertex AI have disks of their own; use a folder in a",
    ),
    (
        [*VERTEX, *IMAGE],
        [*TRAIN[:3], "--model_dir", "m"],
        "--model_dir m: the machines of Vertex AI have disks of their own",
    ),
    ([*VERTEX, *IMAGE], TRAIN[:3], "the following arguments are required: --model_dir"),
    (
        [*VERTEX, *IMAGE],
        [*TRAIN, "--warm_start_from", "m"],
        "--warm_start_from m: the machines of Vertex AI",
    ),
    (
        [*VERTEX, *IMAGE],
        [*TRAIN, "--model", "own.models:net"],
        "--model own.models:net: own.models has to be on the other",
    ),
    (
        [*VERTEX, *IMAGE, "--package", "own.zip"],
        TRAIN,
        "--package own.zip: expected a wheel (.whl) or an sdist (.tar.gz)",
    ),
    ([*VERTEX, *IMAGE, "--package", "own.whl"], TRAIN, "--package own.whl: no such file"),
    (
        [*VERTEX, *IMAGE, "--machine_type", "boss=n1-standard-4"],
        TRAIN,
        "boss is no role; choose from chief, worker, ps",
    ),
    (
        [*VERTEX, *IMAGE, "--machine_type", "ps=n1-standard-4"],
        TRAIN,
        "--machine_type ps=n1-standard-4: the job has no ps",
    ),
    (
        [*VERTEX, *IMAGE, "--machine_type", "big"],
        TRAIN,
        "--machine_type big: expected the name of a machine type for chief",
    ),
    ([*VERTEX, *IMAGE, "--machine_type", "n1-standard-4", "n1-standard-8"], TRAIN, "given twice for chief, evaluator"),
    (
        [*VERTEX, *IMAGE, "--accelerator", "NVIDIA_L4"],
        TRAIN,
        "--accelerator NVIDIA_L4: expected TYPE:N, such as NVIDIA_L4:1",
    ),
    ([*VERTEX, *IMAGE, "--accelerator", "GPU:1"], TRAIN, "--accelerator GPU: no accelerator of Vertex AI; choose from"),
    ([*VERTEX, *IMAGE, "--disk_gb", "10"], TRAIN, "--disk_gb 10: must be 100 or more"),
    ([*VERTEX, *IMAGE, "--timeout_hours", "0"], TRAIN, "--timeout_hours 0: must be more than 0, and finite"),
    ([*VERTEX, *IMAGE, "--labels", "Team=x"], TRAIN, "--labels Team=x: expected up to 63 lower-case letters"),
    ([*VERTEX, *IMAGE, "--env", "1A=x"], TRAIN, "--env 1A=...: is no name of an environment variable"),
    ([*VERTEX, *IMAGE, "--env", "AIP_MODEL_DIR=x"], TRAIN, "--env AIP_MODEL_DIR=...: is set for each process"),
    (
        [*VERTEX, *IMAGE, "--service_account", "me"],
        TRAIN,
        "--service_account me: expected the form of trainer@my-project",
    ),
    ([*VERTEX, *IMAGE, "--network", "default"], TRAIN, "--network default: expected the form of projects/12345/global"),
    ([*VERTEX, *IMAGE, "--tensorboard", "7"], TRAIN, "--tensorboard: needs --service_account"),
    # a study
    ([*VERTEX, *IMAGE, "--trials", "3"], TRAIN, "--trials: is for a study; say what to tune with --tune NAME=double"),
    ([*VERTEX, *IMAGE, *TUNE], METRIC, "--tune: each trial has a model directory of its own; give --output_dir"),
    ([*STUDY, *TUNE], [*METRIC, "--model_dir", "gs://b/m"], "--model_dir: all trials would write there; leave it out"),
    ([*STUDY, *TUNE, "--ps", "1"], METRIC, "--tune: a trial is one process, which reports the metric; leave out"),
    ([*STUDY, *TUNE], TRAIN[:3], "--tune: the tuner needs the name of the metric; add --best_metric to the training"),
    ([*STUDY, "--tune", "dropout"], METRIC, "--tune dropout: expected NAME=double:MIN:MAX"),
    ([*STUDY, "--tune", "dropout=float:0:1"], METRIC, "--tune dropout=float:0:1: expected NAME=double:MIN:MAX"),
    (
        [*STUDY, "--tune", "dropout=double:0"],
        METRIC,
        "=double:0: expected dropout=double:MIN:MAX, or with one of :linear",
    ),
    (
        [*STUDY, "--tune", "dropout=double:0:0.5:lg"],
        METRIC,
        "--tune dropout=double:0:0.5:lg: expected dropout=double:MIN",
    ),
    ([*STUDY, "--tune", "dropout=double:0:x"], METRIC, "--tune dropout=double:0:x: x is no number"),
    ([*STUDY, "--tune", "dropout=double:0:nan"], METRIC, "--tune dropout=double:0:nan: nan is no number"),
    ([*STUDY, "--tune", "batch_size=integer:8:9.5"], METRIC, "batch_size=integer:8:9.5: 9.5 is no whole number"),
    (
        [*STUDY, "--tune", "dropout=double:0.5:0.5"],
        METRIC,
        "the range ends at 0.5, which is not above 0.5, where it begins",
    ),
    (
        [*STUDY, "--tune", "dropout=double:0:0.5:log"],
        METRIC,
        "a log scale has no place for 0; begin above 0, or use linear",
    ),
    ([*STUDY, "--tune", "dropout=discrete:0.2:0.1"], METRIC, "expected two or more numbers that rise"),
    (
        [*STUDY, "--tune", "decay=categorical:true:true"],
        METRIC,
        "expected two or more different values, such as decay=",
    ),
    ([*STUDY, *TUNE, *TUNE], METRIC, "--tune dropout=double:0:0.5: dropout is given twice"),
    (
        [*STUDY, "--tune", "drop=double:0:1"],
        METRIC,
        "--tune drop: a trial with 0 would end with: --hparams: model 'dnn' has",
    ),
    (
        [*STUDY, "--tune", "dropout=double:0:1"],
        METRIC,
        "--tune dropout: a trial with 1 would end with: --hparams of model",
    ),
    (
        [*STUDY, "--tune", "batch_size=double:8:64"],
        METRIC,
        "--tune batch_size: a trial with 42.608 would end with: argument",
    ),
    ([*STUDY, *TUNE], [*METRIC, "--hparams", "dropout=0.1"], "would end with: --hparams: dropout is given twice"),
    (
        [*STUDY, "--tune", "best_metric=categorical:a:b"],
        METRIC,
        "--tune best_metric: is the same for all trials of a study",
    ),
    ([*STUDY, *TUNE, "--trials", "0"], METRIC, "--trials 0: must be 1 or more"),
    ([*STUDY, *TUNE, "--parallel_trials", "11"], METRIC, "--parallel_trials 11: there are only --trials 10"),
    ([*STUDY, *TUNE, "--failed_trials", "11"], METRIC, "--failed_trials 11: must be 0 to 10, the number of trials"),
    ([*STUDY, *TUNE, "--search", "grid"], METRIC, "--search grid: dropout is a double, of which there is no grid"),
    # Kubernetes
    (["kubernetes"], TRAIN, "--image: missing; the containers need an image with the pinned dependencies"),
    (
        ["kubernetes", *IMAGE],
        ON_DISK,
        "--data_dir data: the containers have disks of their own, and there is no --volume",
    ),
    (["kubernetes", *IMAGE, "--volume", "c=/mnt"], ON_DISK, "--data_dir data: must be in a bucket, or below /mnt"),
    (["kubernetes", *IMAGE, "--volume", "mnt"], TRAIN, "--volume mnt: expected CLAIM=DIR, such as data=/mnt/data"),
    (["kubernetes", *IMAGE, "--namespace", "My"], TRAIN, "--namespace My: expected lower-case letters"),
    (["kubernetes", *IMAGE, "--memory", "16 GB"], TRAIN, "--memory 16 GB: expected a quantity, such as 16Gi"),
    (["kubernetes", *IMAGE, "--restarts", "-1"], TRAIN, "--restarts -1: must be 0 or more"),
    (["kubernetes", *IMAGE, "--labels", "a_=b"], TRAIN, "--labels a_=b: expected up to 63 letters"),
    (["kubernetes", *IMAGE, "--staging_bucket", "here"], TRAIN, "--staging_bucket here: must be in a bucket"),
    (["kubernetes", *IMAGE, "--package", __file__], TRAIN, "expected a wheel (.whl) or an sdist (.tar.gz)"),
]


@pytest.mark.parametrize(("flags", "training", "message"), CASES, ids=[message[:60] for *_, message in CASES])
def test_a_mistake_is_refused_in_one_line(
    flags: list[str],
    training: list[str] | None,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AIP_MODEL_DIR", raising=False)
    # Whoever asks a bucket gets another error.
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    assert main(["submit", *flags, *([] if training is None else ["--", *training])]) == 2
    said = capsys.readouterr().err
    assert message in said
    lines = [line for line in said.splitlines() if not line.startswith("See ")]
    assert len(lines) == 1, said
    assert lines[0].startswith("error: ")


def test_a_package_may_not_have_the_name_of_this_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from schemas.source_distribution import archive_name

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own-1.tar.gz").touch()
    (tmp_path / archive_name()).touch()
    for files in ((tmp_path / archive_name(),), (tmp_path / "a" / "own-1.tar.gz", tmp_path / "b" / "own-1.tar.gz")):
        given = [part for file in files for part in ("--package", str(file))]
        assert main(["submit", *VERTEX, *IMAGE, *given, "--", *TRAIN]) == 2
        assert "another package has this file name" in capsys.readouterr().err


def test_a_mistake_is_answered_before_anything_heavy_is_imported() -> None:
    argv = [*VERTEX, *IMAGE, "--", *TRAIN, "--max_steps", "0"]
    assert_light("millrace.submit", argv, code=2, message="--max_steps 0: must be 1 or more")
