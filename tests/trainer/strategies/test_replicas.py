"""Every model under every strategy, beside a training on one device: replicas, tasks, a parameter server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support import replica_steps
from tests.support.replicas import run_with_replicas
from tests.support.task_cluster import run_in_lockstep
from tests.support.tpu_training import BATCH, CORES, HOSTS, OF_TPU, UNREAD, Step, tpu_graph, unknown_to_xla
from tests.support.training import run
from trainer import task
from trainer.models import VARIANTS, Variant
from trainer.strategies import tpu

pytestmark = pytest.mark.long

EXACT = ["--seed", "1", "--deterministic"]
CPUS = ["--logical_cpus", "2"]
MIRRORED, TASKS = ["--strategy", "mirrored"], ["--strategy", "multi_worker"]
SERVED = ["--strategy", "parameter_server"]
BRIEF = ["--no_report"]  # which takes as long as such a training; "trained" and "mixed precision" write one

# Model, dataset, further flags. Without batch norm and dropout, replicas make the steps that one device makes.
ALIKE = {
    "linear": ("linear", "late", []),
    "dnn": ("dnn", "people", []),
    "regression": ("dnn", "wages", []),
    "tabular": ("tabular", "people", ["--hparams", "dropout=0", "members=3", "width=8"]),
    "wide_deep": ("wide_deep", "late", ["--hparams", "dropout=0"]),
    "softmax": ("softmax", "late", []),
    "images": ("softmax", "colors", []),
    "backbone": ("backbone", "colors", ["--hparams", "path={folder}/net.keras", "pixels=0..1", "dropout=0"]),
    "model_fn": ("tests.support.own_models:model_fn", "late", []),
    "keras": ("tests.support.own_models:keras_model", "late", []),
}
# Of these, Estimator reports the sum of the replicas' losses.
CANNED = ("linear", "dnn", "regression", "tabular", "wide_deep")
IN_TASKS = ("linear", "dnn", "tabular", "wide_deep", "images", "backbone", "keras")
# Statistics of each replica's own part of the batch.
APART = {
    "batch_norm": ("dnn", "late", ["--hparams", "batch_norm=true", "dropout=0.2"]),
    "squeezenext": ("squeezenext", "colors", ["--hparams", "variant=small"]),
    "trained": ("backbone", "colors", ["--hparams", "path={folder}/net.keras", "pixels=0..1", "trainable=true"]),
    "face_pairs": ("face_pairs", "patterns", []),
}
WHOLE = ("backbone", "trained")  # which parameter servers do not serve
STEPS = "tests.support.replica_steps"


@pytest.fixture(scope="module")
def steps(share, people, wages, late, colors, patterns) -> dict[tuple[str, str], Any]:
    """By case, what `replica_steps` says of one device, of two replicas, of chief and worker, and of chief and ps.

    All others begin with the weights that the one device began with, to arrive at the same loss.
    """
    data = {"people": people, "wages": wages, "late": late, "colors": colors, "patterns": patterns}

    def train(folder: Path) -> None:
        def command(case: str, way: str, last: int, *more: str, begin: str = "") -> list[str]:
            model, name, flags = {**ALIKE, **APART}[case]
            start = str(folder / case / begin) if begin else ""
            flags = [flag.format(folder=folder) for flag in flags]
            given = ["--model", model, "--batch_size", "20", *EXACT, *flags, *more]
            return [STEPS, str(last), start, data[name].path, str(folder / case / way), *given]

        layers = [tf.keras.layers.Conv2D(4, 3, 2), tf.keras.layers.BatchNormalization(), tf.keras.layers.ReLU()]
        begin = end = tf.keras.layers.Input((32, 32, 3))
        for layer in layers:
            end = layer(end)
        tf.keras.Model(begin, end).save(folder / "net.keras")
        two = [*CPUS, *MIRRORED]
        commands: dict[tuple[str, str], list[str]] = {}
        commands |= {(case, "one"): command(case, "one", 5, *CPUS) for case in ALIKE}
        commands |= {(case, "two"): command(case, "two", 5, *two, begin="one") for case in ALIKE}
        commands |= {(case, "two"): command(case, "two", 2, *two) for case in APART}
        tuned = f"fine_tune_checkpoint={folder / 'squeezenext' / 'two'}"
        commands["fine_tune", "two"] = [*command("squeezenext", "tuned", 1, *two), "--hparams", tuned]
        reports = dict(zip(commands, run_with_replicas([*commands.values()]), strict=True))
        commands = {(case, "tasks"): command(case, "tasks", 5, *TASKS, begin="one") for case in IN_TASKS}
        commands |= {(case, "tasks"): command(case, "tasks", 2, *TASKS) for case in APART}
        commands |= {(case, "ps"): command(case, "ps", 5, *SERVED, begin="one") for case in ALIKE if case not in WHOLE}
        commands |= {(case, "ps"): command(case, "ps", 2, *SERVED) for case in APART if case not in WHOLE}
        reports |= dict(zip(commands, run_in_lockstep(folder, [*commands.values()]), strict=True))
        (folder / "reports.json").write_text(json.dumps([[*key, report] for key, report in reports.items()]))

    found = json.loads((share("replica_steps", train) / "reports.json").read_text())
    return {(str(case), str(way)): report for case, way, report in found}


@pytest.mark.parametrize("case", [*ALIKE, *APART, "fine_tune"])
def test_each_model_trains_on_both_devices(steps, case):
    report = steps[case, "two"]
    assert report["code"] == 0, report["err"]
    found = json.loads(report["out"])
    assert (found["devices"], found["inputs"]) == (2, 2)  # batches are prefetched to the device of their replica


@pytest.mark.parametrize("case", [*IN_TASKS, *APART])
def test_each_model_trains_on_both_tasks(steps, case):
    assert steps[case, "tasks"]["codes"] == {"chief": 0, "worker": 0}


@pytest.mark.parametrize("case", [case for case in (*ALIKE, *APART) if case not in WHOLE])
def test_each_model_trains_with_a_parameter_server(steps, case):
    report = steps[case, "ps"]
    assert report["codes"]["chief"] == 0
    found = json.loads(report["out"].splitlines()[-1])
    assert found["served"]
    if case in ALIKE:  # one worker's steps, in its own order
        assert found["loss"] == pytest.approx(json.loads(steps[case, "one"]["out"])["loss"], rel=1e-4)


@pytest.mark.parametrize("case", ALIKE)
def test_replicas_make_the_steps_of_one_device(steps, case):
    ways = ["two", *(["tasks"] if case in IN_TASKS else [])]
    one, *others = (json.loads(steps[case, way]["out"].splitlines()[-1])["loss"] for way in ("one", *ways))
    assert others == pytest.approx([one * (2 if case in CANNED else 1)] * len(ways), rel=1e-4)


@pytest.fixture(scope="module")
def trainings(share, late) -> dict[str, dict[str, Any]]:
    """What the commands say that train `late` with checkpoints, evaluations and exports."""

    def run(folder: Path) -> None:
        def training(name: str, *flags: str) -> list[str]:
            given = [
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
            return ["trainer.task", "--json", "--save_checkpoints_steps", "20", *given]

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
    ("training", "told"),
    [
        ("uneven", "--batch_size 33: 2 replicas share each batch, so it must be a multiple of 2, such as 32"),
        ("more GPUs", "--num_gpus 2: TensorFlow finds 0 GPUs on this machine"),
    ],
)
def test_refuses(trainings, training, told):
    assert trainings[training]["code"] == 2
    assert told in trainings[training]["out"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(VARIANTS, "small", Variant(units=(1, 1, 1, 1), width=0.5))


def written_scalars(model_dir: Path) -> dict[int, dict[str, float]]:
    """What the host calls wrote, by step and tag."""
    found: dict[int, dict[str, float]] = {}
    for path in model_dir.glob("events.*.v2"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(event.step, {})[value.tag] = float(tf.make_ndarray(value.tensor))
    return found


def test_tpu_estimator_trains_evaluates_exports_and_resumes(late, tmp_path):
    assert run(late, tmp_path, "--tpu", "cpu") == 0
    assert run(late, tmp_path, "--tpu", "cpu", steps=60) == 0
    assert [e["global_step"] for e in json.loads((tmp_path / "evaluations.json").read_text())] == [20, 40, 60]
    assert [path.name for path in sorted((tmp_path / "export").iterdir())] == ["best", "final"]
    ((step, scalars),) = written_scalars(tmp_path).items()
    assert (step, list(scalars)) == (1, ["loss_on_tpu"])  # and then every 100 steps
    assert 0 < scalars["loss_on_tpu"] < 2


def test_a_metric_that_there_is_not_is_refused_before_a_step(late, tmp_path, capsys):
    assert run(late, tmp_path / "model", "--tpu", "cpu", "--best_metric", "acuracy") == 2
    assert "no metric 'acuracy' to select the best model by; did you mean accuracy?" in capsys.readouterr().err
    assert not list((tmp_path / "model").glob("model.ckpt*"))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--tpu", "lab"], "--tpu lab: TensorFlow 2.21.0 is built without TPUs"),
        (["--tpu", "cpu", "--strategy", "mirrored"], "a TPU replicates by itself; leave out --strategy"),
        (["--tpu", "cpu", "--model", "tests.support.own_models:keras_model"], "a Keras model's optimizer would train"),
    ],
)
def test_what_no_tpu_can_do_is_refused(late, flags, told, tmp_path, capsys):
    assert task.main(["--data_dir", late.path, "--model_dir", str(tmp_path / "model"), *flags]) == 2
    assert told in capsys.readouterr().err


def test_this_tensorflow_has_no_kernels_for_tpus():
    assert not tpu.has_kernels()


def test_trains_as_without_a_tpu(people, tmp_path, capsys):
    """From the same weights, with the same batches, through TPUEstimator and its evaluation."""

    def losses(name: str, *flags: str, begin: str = "") -> list[float]:
        start, folder = str(tmp_path / begin) if begin else "", str(tmp_path / name)
        given = ["--model", "softmax", "--batch_size", "20", "--seed", "1", "--deterministic", *flags]
        assert replica_steps.main(["5", start, people.path, folder, *given]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        return [found["first"], found["loss"]]

    usual = losses("usual")
    assert usual[0] != usual[1]
    assert losses("tpu", "--tpu", "cpu", begin="usual") == pytest.approx(usual, rel=1e-5)


@pytest.mark.parametrize(
    ("model", "dataset", "hparams"),
    [
        ("softmax", "late", {}),
        ("dnn", "people", {"hidden_units": (8,), "batch_norm": True}),
        ("dnn", "wages", {}),
        ("tabular", "people", {"dropout": 0.0, "members": 3, "width": 8}),
        ("tabular", "wages", {"members": 3, "width": 8}),
        ("linear", "people", {}),
        ("linear", "remarks", {}),
        ("dnn", "remarks", {"hidden_units": (8,)}),
        ("wide_deep", "people", {"dropout": 0.0, "indicator_limit": 2}),
        ("softmax", "colors", {}),
        ("squeezenext", "colors", {"variant": "small"}),
        ("convnet", "colors", {"dropout": 0.0, "width": 4}),
        ("face_pairs", "patterns", {"dropout": 0.0, "width": 4}),
    ],
)
def test_xla_compiles_the_step_and_it_is_the_usual_one(request, tmp_path, model, dataset, hparams):
    data = request.getfixturevalue(dataset)
    usual = Step(model, data, tmp_path / "usual", for_tpu=False, **hparams).make(2)
    step = Step(model, data, tmp_path / "tpu", for_tpu=True, **hparams)
    assert all(x.shape.is_fully_defined() for x in step.inputs)
    made = step.make(2, usual.before)
    # Batch norm over few examples multiplies by a hundred what threads that add up in another order make of the first.
    np.testing.assert_allclose(made.losses, usual.losses, rtol=1e-3)
    shapes = {name: value.shape for name, value in usual.before.items()}
    assert {name: value.shape for name, value in made.before.items()} == shapes  # so checkpoints fit either
    assert "<=" not in step.lowered()  # which stands for a size that is known only when the step runs


def test_xla_does_not_compile_the_step_of_a_cpu(late, tmp_path):
    with pytest.raises(ValueError, match=r"unsupported operations.* SparseReshape"):
        Step("linear", late, tmp_path, for_tpu=False).lowered()


@pytest.fixture(
    scope="module",
    params=[("dnn", "people", ["--hparams", "dropout=0.2"]), ("face_pairs", "patterns", [])],
    ids=["rows", "images"],
)
def built(request, tmp_path_factory):
    model, dataset, flags = request.param
    with pytest.MonkeyPatch.context() as monkeypatch:
        data = request.getfixturevalue(dataset)
        return tpu_graph(model, data, tmp_path_factory.mktemp("model"), monkeypatch, *flags)


class TestGraphOfATPU:
    """It is built, but no TPU has ever made it."""

    def test_holds_only_what_xla_knows(self, built):
        assert unknown_to_xla(built.operations()) <= OF_TPU | UNREAD

    def test_averages_the_gradient_of_each_variable_over_the_cores(self, built):
        sums = [node for node in built.step if node.op == "CrossReplicaSum"]
        assert len(sums) == len(built.trained) > 3

    def test_each_host_reads_its_part_and_each_core_its_share(self, built):
        assert built.parts == [{"num_workers": HOSTS, "worker": i} for i in range(HOSTS)]
        assert {shape[0] for shape in built.inputs()} == {BATCH // CORES}
        assert all(side > 0 for shape in built.inputs() for side in shape)

    def test_loops_and_tells_the_host(self, built):
        assert built.loop == 100
        assert built.operations()["OutfeedEnqueueTuple"] == 1
        assert {"SaveCheckpoints", "CheckInterrupts", "TPUInfeedOutfeedSessionHook"} <= set(built.hooks)
        assert "SummarySaverHook" not in built.hooks  # which would read images out of the step
