"""Every model under every strategy, beside a training on one device: replicas, a parameter server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.tpu.tpu_function import tpu_shard_context

from schemas.dataset import OpenDataset
from tests.support import replica_steps
from tests.support.datasets import written_rows
from tests.support.replicas import run_with_replicas
from tests.support.task_cluster import run_in_lockstep
from tests.support.training import run
from trainer import task
from trainer.strategies import tpu

pytestmark = pytest.mark.long

EXACT = ["--seed", "1", "--deterministic"]
CPUS = ["--logical_cpus", "2"]
MIRRORED = ["--strategy", "mirrored"]
SERVED = ["--strategy", "parameter_server"]
BRIEF = ["--no_report"]  # which takes as long as such a training; "trained" and "mixed precision" write one

# Model, dataset, further flags. Without batch norm and dropout, replicas make the steps that one device makes.
ALIKE = {
    "linear": ("linear", "late", []),
    "dnn": ("dnn", "people", []),
    "tabular": ("tabular", "people", ["--hparams", "dropout=0", "members=3", "width=8"]),
    "wide_deep": ("wide_deep", "late", ["--hparams", "dropout=0"]),
    "softmax": ("softmax", "late", []),
    "images": ("softmax", "colors", []),
    "backbone": ("backbone", "colors", ["--hparams", "path={folder}/net", "pixels=0..1", "dropout=0"]),
    "model_fn": ("tests.support.own_models:model_fn", "late", []),
    "keras": ("tests.support.own_models:keras_model", "late", []),
}
# Of these, Estimator reports the sum of the replicas' losses.
CANNED = ("linear", "dnn", "tabular", "wide_deep")
# Statistics of each replica's own part of the batch.
APART = {
    "batch_norm": ("dnn", "late", ["--hparams", "batch_norm=true", "dropout=0.2"]),
    "squeezenext": ("squeezenext", "colors", ["--hparams", "units=1,1,1,1", "width=0.5"]),
    "trained": ("backbone", "colors", ["--hparams", "path={folder}/net", "pixels=0..1", "trainable=true"]),
    "face_pairs": ("face_pairs", "patterns", []),
}
WHOLE = ("backbone", "trained")  # which parameter servers do not serve
STEPS = "tests.support.replica_steps"
OWN = "tests.support.own_models"
TERRAIN = """\
name: terrain
format: csv
csv: {header: present}
features:
  - {name: height, kind: numeric}
  - {name: slope, kind: numeric}
label: {name: wet, kind: category, values: ["no", "yes"]}
split: {by: row, train: 0.6, eval: 0.2, test: 0.2}
"""


@pytest.fixture(scope="module")
def steps(share, people, wages, late, colors, patterns) -> dict[tuple[str, str], Any]:
    """By case, what `replica_steps` says of one device, of two replicas, and of chief and ps.

    All others begin with the weights that the one device began with, to arrive at the same loss.
    """
    data = {"people": people, "wages": wages, "late": late, "colors": colors, "patterns": patterns}

    def train(folder: Path) -> None:
        def command(case: str, way: str, last: int, *more: str, begin: str = "") -> list[str]:
            model, name, flags = {**ALIKE, **APART}[case]
            start = str(folder / case / begin) if begin else ""
            flags = [flag.format(folder=folder) for flag in flags]
            model_flags = ["--model", model, "--batch_size", "20", *EXACT, *flags, *more]
            return [STEPS, str(last), start, data[name].path, str(folder / case / way), *model_flags]

        layers = [tf.keras.layers.Conv2D(4, 3, 2), tf.keras.layers.BatchNormalization(), tf.keras.layers.ReLU()]
        begin = end = tf.keras.layers.Input((32, 32, 3))
        for layer in layers:
            end = layer(end)
        tf.keras.Model(begin, end).save(folder / "net", save_format="tf")
        two = [*CPUS, *MIRRORED]
        commands: dict[tuple[str, str], list[str]] = {}
        commands |= {(case, "one"): command(case, "one", 5, *CPUS) for case in ALIKE}
        commands |= {(case, "two"): command(case, "two", 5, *two, begin="one") for case in ALIKE}
        commands |= {(case, "two"): command(case, "two", 2, *two) for case in APART}
        reports = dict(zip(commands, run_with_replicas([*commands.values()]), strict=True))
        commands = {(case, "ps"): command(case, "ps", 5, *SERVED, begin="one") for case in ALIKE if case not in WHOLE}
        commands |= {(case, "ps"): command(case, "ps", 2, *SERVED) for case in APART if case not in WHOLE}
        reports |= dict(zip(commands, run_in_lockstep(folder, [*commands.values()]), strict=True))
        (folder / "reports.json").write_text(json.dumps([[*key, report] for key, report in reports.items()]))

    entries = json.loads((share("replica_steps", train) / "reports.json").read_text())
    return {(str(case), str(way)): report for case, way, report in entries}


@pytest.mark.parametrize("case", [*ALIKE, *APART])
def test_each_model_trains_on_both_devices(steps, case):
    report = steps[case, "two"]
    assert report["code"] == 0, report["err"]
    outcome = json.loads(report["out"])
    assert (outcome["devices"], outcome["inputs"]) == (2, 2)  # batches are prefetched to the device of their replica


@pytest.mark.parametrize("case", [case for case in (*ALIKE, *APART) if case not in WHOLE])
def test_each_model_trains_with_a_parameter_server(steps, case):
    report = steps[case, "ps"]
    assert report["code"] == 0
    outcome = json.loads(report["out"].splitlines()[-1])
    assert outcome["served"]
    if case in ALIKE:  # one worker's steps, in its own order
        assert outcome["loss"] == pytest.approx(json.loads(steps[case, "one"]["out"])["loss"], rel=1e-4)


@pytest.mark.parametrize("case", ALIKE)
def test_replicas_make_the_steps_of_one_device(steps, case):
    device_loss, replicas_loss = (
        json.loads(steps[case, way]["out"].splitlines()[-1])["loss"] for way in ("one", "two")
    )
    assert replicas_loss == pytest.approx(device_loss * (2 if case in CANNED else 1), rel=1e-4)


@pytest.fixture(scope="module")
def trainings(share, late) -> dict[str, dict[str, Any]]:
    """What the commands say that train `late` with checkpoints, evaluations and exports."""

    def run(folder: Path) -> None:
        def training(name: str, *flags: str) -> list[str]:
            argv = [
                "--data_dir",
                late.path,
                "--model_dir",
                str(folder / name),
                "--batch_size",
                "32",
                *EXACT,
                *CPUS,
                *flags,
            ]
            return ["trainer.task", "--json", "--save_checkpoints_steps", "20", *argv]

        still = ["--hparams", "learning_rate=0", "--early_stopping_steps", "20", "--max_steps", "1000"]
        commands = {
            "trained": training("model", "--model", "softmax", "--max_steps", "40", *MIRRORED),
            "resumed by one device": training("model", "--model", "softmax", "--max_steps", "60", *BRIEF),
            "resumed by replicas": training("model", "--model", "softmax", "--max_steps", "80", *MIRRORED, *BRIEF),
            "stopped early": training("still", "--model", "softmax", *still, *MIRRORED, *BRIEF),
            "mixed precision": training("mixed", "--model", "dnn", "--max_steps", "40", "--mixed_precision"),
            "XLA": training("xla", "--model", "softmax", "--max_steps", "40", "--xla", *MIRRORED, *BRIEF),
            "uneven": [*training("uneven", *MIRRORED), "--batch_size", "33"],
            "more GPUs": training("gpus", *MIRRORED, "--num_gpus", "2"),
        }
        reports = dict(zip(commands, run_with_replicas([*commands.values()]), strict=True))
        (folder / "reports.json").write_text(json.dumps(reports))

    return dict(json.loads((share("replica_trainings", run) / "reports.json").read_text()))


@pytest.mark.parametrize(
    ("training", "step"),
    [("trained", 40), ("resumed by one device", 60), ("resumed by replicas", 80), ("mixed precision", 40), ("XLA", 40)],
)
def test_trains_evaluates_exports_and_resumes(trainings, training, step):
    report = trainings[training]
    assert report["code"] == 0, report["err"]
    result = json.loads(report["out"])
    assert (result["global_step"], sorted(result["exports"])) == (step, ["best", "final"])
    assert "Warning" not in report["err"]


def test_stops_early(trainings):
    result = json.loads(trainings["stopped early"]["out"])
    assert (result["ended"], result["global_step"]) == ("no better evaluation for 20 steps", 40)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ("uneven", "--batch_size 33: 2 replicas share each batch, so it must be a multiple of 2, such as 32"),
        ("more GPUs", "--num_gpus 2: TensorFlow finds 0 GPUs on this machine"),
    ],
)
def test_refuses(trainings, training, message):
    assert trainings[training]["code"] == 2
    assert message in trainings[training]["out"]


@pytest.fixture(scope="module")
def terrain(share_dataset) -> OpenDataset:
    """Numbers, a label of two classes and no ids, as a step on a TPU takes them."""
    rows = [f"{20 + i % 40},{i % 60},{'yes' if i % 40 > 20 else 'no'}" for i in range(300)]
    return share_dataset("terrain", lambda folder: written_rows(folder, TERRAIN, "height,slope,wet", rows))


def test_tpu_estimator_trains_evaluates_exports_and_resumes(terrain, tmp_path):
    assert run(terrain, tmp_path, "--tpu", "cpu") == 0
    assert run(terrain, tmp_path, "--tpu", "cpu", steps=60) == 0
    assert [e["global_step"] for e in json.loads((tmp_path / "evaluations.json").read_text())] == [20, 40, 60]
    assert [path.name for path in sorted((tmp_path / "export").iterdir())] == ["best", "final"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tpu", "lab"], "--tpu lab: TensorFlow 2.21.0 is built without TPUs"),
        (["--tpu", "cpu", "--strategy", "mirrored"], "a TPU replicates by itself; leave out --strategy"),
        (
            ["--tpu", "cpu", "--model", "dnn"],
            "reads 'work' for a TPU: TensorFlow's feature columns make sparse tensors",
        ),
        (["--tpu", "cpu", "--model", "tests.support.own_models:keras_model"], "a Keras model's optimizer would train"),
    ],
)
def test_what_no_tpu_can_do_is_refused(late, flags, message, tmp_path, capsys):
    assert task.main(["--data_dir", late.path, "--model_dir", str(tmp_path / "model"), *flags]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dataset", "model", "feature", "obstacle"),
    [
        ("people", f"{OWN}:model_fn", "words", "it is a list or a text, and no dense tensor of numbers"),
        ("colors", "softmax", "image", "images are normalized by the dataset's transform graph, which holds strings"),
    ],
)
def test_what_xla_cannot_compile_is_refused_by_name(request, tmp_path, capsys, dataset, model, feature, obstacle):
    data = request.getfixturevalue(dataset).path
    argv = ["--data_dir", data, "--model_dir", str(tmp_path / "model"), "--model", model, "--tpu", "cpu"]
    assert task.main(argv) == 2
    assert f"--tpu: XLA cannot compile a step that reads {feature!r} for a TPU: {obstacle}" in capsys.readouterr().err


def test_trains_as_without_a_tpu(terrain, tmp_path, capsys):
    """From the same weights, with the same batches, through TPUEstimator and its evaluation."""

    def losses(name: str, *flags: str, begin: str = "") -> list[float]:
        start, folder = str(tmp_path / begin) if begin else "", str(tmp_path / name)
        argv = ["--model", "softmax", "--batch_size", "20", "--seed", "1", "--deterministic", *flags]
        assert replica_steps.main(["5", start, terrain.path, folder, *argv]) == 0
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        return [report["first"], report["loss"]]

    usual = losses("usual")
    assert usual[0] != usual[1]
    assert losses("tpu", "--tpu", "cpu", begin="usual") == pytest.approx(usual, rel=1e-5)


def test_the_cores_of_a_tpu_apply_the_mean_of_their_gradients():
    with tf.Graph().as_default() as graph, tpu_shard_context(4):
        variable = tf.compat.v1.get_variable("x", [3])
        optimizer = tpu.across_cores(tf.compat.v1.train.AdamOptimizer(0.1))
        optimizer.minimize(tf.reduce_sum(variable))
        assert [op.type for op in graph.get_operations()].count("CrossReplicaSum") == 1
        ((mean, _),) = tpu.keras_settings()["gradient_transformers"][0]([(tf.ones([3]), variable)])
        assert mean.op.type == "CrossReplicaSum"
        (share,) = (x.op for x in mean.op.inputs if x.dtype == tf.float32)
        assert share.type == "RealDiv"
