"""Every model under every strategy, beside a training on one device: replicas, tasks, a parameter server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.replicas import run_with_replicas
from tests.support.task_cluster import run_in_lockstep

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
    "wide_deep": ("wide_deep", "late", ["--hparams", "dropout=0"]),
    "softmax": ("softmax", "late", []),
    "images": ("softmax", "colors", []),
    "model_fn": ("tests.support.own_models:model_fn", "late", []),
    "keras": ("tests.support.own_models:keras_model", "late", []),
}
CANNED = ("linear", "dnn", "regression", "wide_deep")  # of which Estimator reports the sum of the replicas' losses
IN_TASKS = ("linear", "dnn", "wide_deep", "images", "keras")
# Statistics of each replica's own part of the batch.
APART = {
    "batch_norm": ("dnn", "late", ["--hparams", "batch_norm=true", "dropout=0.2"]),
    "squeezenext": ("squeezenext", "colors", ["--hparams", "variant=small"]),
    "face_pairs": ("face_pairs", "patterns", []),
}
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
            given = ["--model", model, "--batch_size", "20", *EXACT, *flags, *more]
            return [STEPS, str(last), start, data[name].path, str(folder / case / way), *given]

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
        commands |= {(case, "ps"): command(case, "ps", 5, *SERVED, begin="one") for case in ALIKE}
        commands |= {(case, "ps"): command(case, "ps", 2, *SERVED) for case in APART}
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


@pytest.mark.parametrize("case", [*ALIKE, *APART])
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
        examined = ["--data_dir", late.path, "--batch_size", "32", "--seconds", "1", "--rounds", "2", "--json"]
        commands = {
            "trained": training("model", "--model", "softmax", "--max_steps", "40", *MIRRORED),
            "resumed by one device": training("model", "--model", "softmax", "--max_steps", "60", *BRIEF),
            "resumed by replicas": training("model", "--model", "softmax", "--max_steps", "80", *MIRRORED, *BRIEF),
            "stopped early": training("still", "--model", "softmax", *still, *MIRRORED, *BRIEF),
            "mixed precision": training("mixed", "--model", "dnn", "--max_steps", "40", "--mixed_precision"),
            "XLA": training("xla", "--model", "softmax", "--max_steps", "40", "--xla", *MIRRORED, *BRIEF),
            "uneven": [*training("uneven", *MIRRORED), "--batch_size", "33"],
            "more GPUs": training("gpus", *MIRRORED, "--num_gpus", "2"),
            "examined": ["trainer.doctor.command", "--model", "softmax", *examined, *EXACT, *CPUS, *MIRRORED],
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
    assert result["ended"].startswith("no better evaluation for")


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


def test_the_doctor_examines_it(trainings):
    report = trainings["examined"]
    assert report["code"] == 0, report["err"]
    assert json.loads(report["out"])["batch_size"] == 32
