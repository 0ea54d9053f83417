"""Studies of real trainings: values that lose are pruned, trials that fail are told, and a kill loses nothing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.tune import command
from schemas.dataset import OpenDataset
from tests.support.commands import ended
from tests.support.processes import until
from tests.support.training import ALL_STEPS
from trainer import task

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
MODEL = "tests.support.tuned_models:model_fn"


def arguments(dataset: OpenDataset, study: Path, *argv: str, steps: int = 30) -> list[str]:
    fixed = ["--data_dir", dataset.path, "--study", str(study), "--model", MODEL, "--max_steps", str(steps)]
    fixed += ["--save_checkpoints_steps", "10", "--batch_size", "32", "--seed", "1", "--deterministic", "--no_report"]
    return [*fixed, "--best_metric", "loss", *argv]


def tuned(capsys: pytest.CaptureFixture[str], argv: list[str], *, code: int = 0) -> tuple[Any, str]:
    """What the command prints with --json, and on standard error."""
    assert command.main([*argv, "--json"]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


@pytest.fixture(scope="module")
def whole(late: OpenDataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A study of four rates that learn and one that does not, in a folder whose name needs quotes; what it printed."""
    study = tmp_path_factory.mktemp("study") / "it's $HOME"
    space = ["--space", "learning_rate=categorical:0.003:0.004:0.005:0.006:0", "--search", "grid"]
    done = ended(command.main, arguments(late, study, *space))
    assert done.code == 0
    return study, done.out, done.err


def test_values_that_lose_are_pruned(whole: tuple[Path, str, str]) -> None:
    """Also if the trial had ended by itself meanwhile: how fast trials are decides nothing."""
    _, out, err = whole
    assert "trial 4 (5 of 5): learning_rate=0\n" in err
    assert re.search(r"trial 4 ended after \d+ s: pruned: loss [\d.]+ at step 20, where others were better", err)
    states = [line.split()[:2] for line in out.splitlines()[1:6]]
    assert sorted(states) == [
        ["0", "complete"],
        ["1", "complete"],
        ["2", "complete"],
        ["3", "complete"],
        ["4", "pruned"],
    ]
    assert states[-1] == ["4", "pruned"]  # below the others


def test_the_best_is_the_one_with_the_lowest_loss(whole: tuple[Path, str, str]) -> None:
    study, out, _ = whole
    losses = {}
    for trial in sorted((study / "trials").iterdir())[:4]:
        losses[trial.name] = min(
            evaluation["loss"] for evaluation in json.loads((trial / "evaluations.json").read_text())
        )
        assert (trial / "export" / "best").is_dir()
    best = min(losses, key=lambda name: losses[name])
    assert f"best     trial {int(best)}: loss {losses[best]:.6g}" in out


def test_the_command_that_is_printed_trains_the_best_again(whole: tuple[Path, str, str]) -> None:
    study, out, _ = whole
    command = out.rpartition("train it again:\n")[2]
    words = subprocess.run(
        ["sh", "-c", f'for word in {command.strip()}; do printf "%s\\n" "$word"; done'],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert words[:2] == ["millrace", "train"]
    assert words == shlex.split(command)
    assert task.main(words[2:]) == 0
    best = study / "trials" / f"{int(out.partition('best     trial ')[2].partition(':')[0]):03d}"
    trained = json.loads((study / "best" / "evaluations.json").read_text())
    assert [evaluation["global_step"] for evaluation in trained] == [10, 20, 30]
    for again, before in zip(trained, json.loads((best / "evaluations.json").read_text()), strict=True):
        assert again == pytest.approx(before, rel=1e-5)


def test_a_study_that_has_ended_says_the_same_again(
    whole: tuple[Path, str, str], late: OpenDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    space = ["--space", "learning_rate=categorical:0.003:0.004:0.005:0.006:0", "--search", "grid"]
    result, err = tuned(capsys, arguments(late, whole[0], *space))
    assert err == ""
    assert (result["metric"], result["ended"], len(result["trials"])) == ("loss", "5 trials", 5)
    assert shlex.join(result["command"]) in whole[1]
    assert result["trials"][4]["state"] == "PRUNED"
    assert set(result["trials"][4]["evaluations"]) == {"10", "20"}


def test_a_trial_that_is_a_link_is_refused_since_models_are_removed_below_it(
    whole: tuple[Path, str, str], late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    shutil.copytree(whole[0], study)
    (study / "trials" / "004").rename(elsewhere)
    (study / "trials" / "004").symlink_to(elsewhere)
    space = [
        "--space",
        "learning_rate=categorical:0.003:0.004:0.005:0.006:0",
        "--search",
        "grid",
        "--keep_models",
        "best",
    ]
    result, _ = tuned(capsys, arguments(late, study, *space), code=1)
    assert result["error"].startswith(f"{study}/trials/004: is a link to {elsewhere}; expected a file or folder")
    assert (elsewhere / "export").is_dir()


def test_with_another_training_it_is_another_study(
    whole: tuple[Path, str, str], late: OpenDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    space = ["--space", "learning_rate=categorical:0.003:0.004:0.005:0.006:0", "--search", "grid"]
    result, _ = tuned(capsys, arguments(late, whole[0], *space, steps=50), code=2)
    assert "holds a study with another training" in result["error"]


def test_trials_that_fail_are_reported_and_the_others_go_on(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--space", "fate=categorical:nan:killed:fine", "--search", "grid", "--keep_models", "best"]
    result, err = tuned(capsys, arguments(late, tmp_path / "study", *argv))
    trials = {trial["values"]["fate"]: trial for trial in result["trials"]}
    assert "the loss became NaN. Try a lower learning_rate" in trials["nan"]["reason"]
    assert "the loss became NaN" in err
    assert trials["killed"]["reason"] == "the process was killed; the kernel does that if memory runs out"
    states = [trials[fate]["state"] for fate in ("nan", "killed", "fine")]
    assert states == ["FAIL", "FAIL", "COMPLETE"]
    best = Path(trials["fine"]["model_dir"])
    assert result["best"] == trials["fine"]["number"]
    assert {path.parent for path in (tmp_path / "study").rglob("model.ckpt-*.index")} == {best}
    assert (Path(trials["nan"]["model_dir"]) / "log.txt").exists()


def test_if_all_trials_fail_the_study_has_failed(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--space", "learning_rate=float:0.1:1", "--hparams", "fate=killed", "--trials", "9"]
    result, err = tuned(capsys, arguments(late, tmp_path / "study", *argv), code=1)
    assert "every trial has failed; trial 0: the process was killed" in result["error"]
    assert "trial 5" not in err
    argv = ["--space", "fate=categorical:nan:killed", "--search", "grid"]
    result, _ = tuned(capsys, arguments(late, tmp_path / "two", *argv), code=1)
    assert "every trial has failed; trial 0: " in result["error"]


def test_a_metric_that_no_evaluation_has_is_named(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--space", "learning_rate=categorical:0.1:0.2", "--best_metric", "f1", "--search", "grid"]
    result, _ = tuned(capsys, arguments(late, tmp_path / "study", *argv), code=1)
    assert "every trial has failed; trial 0: the evaluation has no metric 'f1'" in result["error"]


def test_folders_of_trials_without_their_study_are_left_alone(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study" / "trials" / "000").mkdir(parents=True)
    result, _ = tuned(
        capsys, arguments(late, tmp_path / "study", "--space", "learning_rate=categorical:0.1:0.2"), code=2
    )
    assert "has trials/ but no study.db" in result["error"]


def test_killed_at_any_time_it_continues_where_it_was(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    argv = arguments(late, study, "--space", "learning_rate=categorical:0.01:0.02", "--search", "grid", steps=200)
    argv += ["--hparams", "fate=slow", *ALL_STEPS]
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen([sys.executable, "-m", "millrace", "tune", *argv], cwd=ROOT, stderr=log, stdout=log)
    first = study / "trials" / "000"
    try:
        until(lambda: (first / "evaluations.json").exists() or process.poll() is not None, "an evaluation")
        refused, _ = tuned(capsys, argv, code=2)
        assert "another process is at work on this study" in refused["error"]
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        log.close()
    result, _ = tuned(capsys, argv)
    assert [trial["state"] for trial in result["trials"]] == ["COMPLETE", "COMPLETE"]
    assert {trial["values"]["learning_rate"] for trial in result["trials"]} == {"0.01", "0.02"}
    assert str(first) in [trial["model_dir"] for trial in result["trials"]]
    steps = [evaluation["global_step"] for evaluation in json.loads((first / "evaluations.json").read_text())]
    assert (sorted(set(steps)), steps[0], steps[-1]) == (steps, 10, 200)


def test_without_a_model_it_is_that_of_the_data_for_all_trials(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--data_dir", late.path, "--study", str(tmp_path), "--max_steps", "10", "--no_report"]
    argv += ["--space", "width=categorical:8:16", "--search", "grid", "--hparams", "members=2", "depth=1"]
    result, err = tuned(capsys, argv)
    assert [trial["state"] for trial in result["trials"]] == ["COMPLETE", "COMPLETE"]
    assert result["command"][result["command"].index("--model") + 1] == "tabular"
    assert "model    tabular, chosen by the data" in err


def test_when_the_time_is_up_it_stops_and_can_go_on(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = arguments(late, tmp_path / "study", "--space", "learning_rate=categorical:0.01:0.02")
    result, _ = tuned(capsys, [*argv, "--timeout_hours", "0.0000001"])
    assert result["ended"] == "--timeout_hours 1e-07 is over; run the command again to continue"
    assert (result["best"], result["trials"], result["command"]) == (None, [], [])


@pytest.mark.parametrize("content", [b"not a study" * 100, b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_named(
    late: OpenDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "study.db").write_bytes(content)
    result, _ = tuned(capsys, arguments(late, tmp_path, "--space", "learning_rate=float:0.1:0.2"), code=1)
    assert result["error"].startswith(f"{tmp_path / 'study.db'}: the study cannot be read or written: ")
    assert (tmp_path / "study.db").read_bytes() == content
