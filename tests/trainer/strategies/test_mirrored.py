"""Replicas that share each batch: every model, on two logical CPUs, beside a training on one device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.replicas import run_with_replicas

pytestmark = pytest.mark.slow

CPUS = ["--logical_cpus", "2", "--seed", "1", "--deterministic"]
MIRRORED = ["--strategy", "mirrored"]

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
# Statistics of each replica's own part of the batch.
APART = {
    "batch_norm": ("dnn", "late", ["--hparams", "batch_norm=true", "dropout=0.2"]),
    "squeezenext": ("squeezenext", "colors", ["--hparams", "variant=small"]),
    "face_pairs": ("face_pairs", "patterns", []),
}
STEPS = "tests.support.replica_steps"


@pytest.fixture(scope="module")
def steps(share, people, wages, late, colors, patterns) -> dict[tuple[str, str], Any]:
    """By case, what `replica_steps` says of one device and of two replicas that begin at its first checkpoint."""
    data = {"people": people, "wages": wages, "late": late, "colors": colors, "patterns": patterns}

    def train(folder: Path) -> None:
        def command(case: str, way: str, last: int, *more: str, begin: str = "") -> list[str]:
            model, name, flags = {**ALIKE, **APART}[case]
            start = str(folder / case / begin) if begin else ""
            given = ["--model", model, "--batch_size", "20", *CPUS, *flags, *more]
            return [STEPS, str(last), start, data[name].path, str(folder / case / way), *given]

        commands: dict[tuple[str, str], list[str]] = {}
        commands |= {(case, "first"): command(case, "first", 1) for case in ALIKE}
        commands |= {(case, "one"): command(case, "one", 5, begin="first") for case in ALIKE}
        commands |= {(case, "two"): command(case, "two", 5, *MIRRORED, begin="first") for case in ALIKE}
        commands |= {(case, "two"): command(case, "two", 2, *MIRRORED) for case in APART}
        tuned = f"fine_tune_checkpoint={folder / 'squeezenext' / 'two'}"
        commands["fine_tune", "two"] = [*command("squeezenext", "tuned", 1, *MIRRORED), "--hparams", tuned]
        reports = zip(commands, run_with_replicas([*commands.values()]), strict=True)
        (folder / "reports.json").write_text(json.dumps([[*key, report] for key, report in reports]))

    found = json.loads((share("replica_steps", train) / "reports.json").read_text())
    return {(str(case), str(way)): report for case, way, report in found}


@pytest.mark.parametrize("case", [*ALIKE, *APART, "fine_tune"])
def test_each_model_trains_on_both_devices(steps, case):
    report = steps[case, "two"]
    assert report["code"] == 0, report["err"]
    assert json.loads(report["out"])["devices"] == 2


@pytest.mark.parametrize("case", ALIKE)
def test_replicas_make_the_steps_of_one_device(steps, case):
    one, two = (json.loads(steps[case, way]["out"])["loss"] for way in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-4)


@pytest.fixture(scope="module")
def trainings(share, late) -> dict[str, dict[str, Any]]:
    """What the commands say that train `late` with checkpoints, evaluations and exports."""

    def run(folder: Path) -> None:
        def training(name: str, *flags: str) -> list[str]:
            given = ["--data_dir", late.path, "--model_dir", str(folder / name), "--batch_size", "32", *CPUS, *flags]
            return ["trainer.task", "--json", "--save_checkpoints_steps", "20", *given]

        still = ["--hparams", "learning_rate=0", "--early_stopping_steps", "20", "--max_steps", "1000"]
        examined = ["--data_dir", late.path, "--batch_size", "32", "--seconds", "1", "--rounds", "2", "--json"]
        commands = {
            "trained": training("model", "--model", "softmax", "--max_steps", "40", *MIRRORED),
            "resumed by one device": training("model", "--model", "softmax", "--max_steps", "60"),
            "resumed by replicas": training("model", "--model", "softmax", "--max_steps", "80", *MIRRORED),
            "stopped early": training("still", "--model", "softmax", *still, *MIRRORED),
            "mixed precision": training("mixed", "--model", "dnn", "--max_steps", "40", "--mixed_precision"),
            "XLA": training("xla", "--model", "softmax", "--max_steps", "40", "--xla", *MIRRORED),
            "uneven": [*training("uneven", *MIRRORED), "--batch_size", "33"],
            "more GPUs": training("gpus", *MIRRORED, "--num_gpus", "2"),
            "examined": ["trainer.doctor", "--model", "softmax", "--one_process", *examined, *CPUS, *MIRRORED],
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
