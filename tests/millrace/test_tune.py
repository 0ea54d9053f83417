"""Studies of real trainings: values that lose are pruned, trials that fail are told, and a kill loses nothing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.tune import command
from millrace.tune.records import recorded_model
from schemas.concurrency import usable_cores
from schemas.dataset import Dataset
from tests.support.commands import ended
from tests.support.html_page import Page
from tests.support.processes import until
from trainer import task

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
MODEL = "tests.support.tuned_models:model_fn"


def arguments(dataset: Dataset, study: Path, *argv: str, steps: int = 30) -> list[str]:
    fixed = ["--data_dir", dataset.path, "--study", str(study), "--model", MODEL, "--max_steps", str(steps)]
    fixed += ["--save_checkpoints_steps", "10", "--batch_size", "32", "--seed", "1", "--deterministic", "--no_report"]
    return [*fixed, "--best_metric", "loss", *argv]


def tuned(capsys: pytest.CaptureFixture[str], argv: list[str], *, code: int = 0) -> tuple[Any, str]:
    """What the command prints with --json, and on standard error."""
    assert command.main([*argv, "--json"]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


@pytest.fixture(scope="module")
def whole(late: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A study of four rates that learn and one that does not, in a folder whose name needs quotes; what it printed."""
    study = tmp_path_factory.mktemp("study") / "it's $HOME"
    space = ["--space", "learning_rate=categorical:0.003:0.004:0.005:0.006:0"]
    done = ended(command.main, arguments(late, study, *space))
    assert done.code == 0
    return study, done.out, done.err


def test_values_that_lose_are_pruned_and_it_is_told(whole: tuple[Path, str, str]) -> None:
    study, out, err = whole
    assert "trial 5 of 5: learning_rate=0\n" in err
    assert "trial 5 pruned: loss " in err
    assert " at step 20, where others were better" in err
    states = [line.split()[:2] for line in out.splitlines()[1:6]]
    assert sorted(states) == [["1", "done"], ["2", "done"], ["3", "done"], ["4", "done"], ["5", "pruned"]]
    assert states[-1] == ["5", "pruned"]  # below the others
    assert "Traceback" not in (study / "trials" / "005" / "log.txt").read_text()
    assert not [path for path in (study / "trials" / "005").rglob("*") if "temp" in path.name]


def test_a_pruned_trial_has_its_best_checkpoint_and_no_export_until_it_is_trained_on(
    whole: tuple[Path, str, str], late: Dataset, tmp_path: Path
) -> None:
    trial = tmp_path / "005"
    shutil.copytree(whole[0] / "trials" / "005", trial)
    best = trial / "export" / "best"
    kept = json.loads((best / "kept.json").read_text())
    assert kept["global_step"] in (10, 20)
    assert (best / kept["folder"] / f"model.ckpt-{kept['global_step']}.index").is_file()
    assert sorted(os.listdir(best)) == [kept["folder"], "kept.json"]
    assert os.listdir(trial / "export") == ["best"]
    flags = [*arguments(late, tmp_path), "--hparams", "learning_rate=0"]
    at = flags.index("--study")
    assert task.main([*flags[:at], "--model_dir", str(trial), *flags[at + 2 :]]) == 0
    assert len([path for path in best.iterdir() if path.name.isdigit()]) == 1
    assert not list(best.glob("kept*"))


def test_the_best_is_the_one_with_the_lowest_loss(whole: tuple[Path, str, str]) -> None:
    study, out, _ = whole
    losses = {}
    for trial in sorted((study / "trials").iterdir())[:4]:
        losses[trial.name] = min(each["loss"] for each in json.loads((trial / "evaluations.json").read_text()))
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
    assert words[:3] == ["python", "-m", "trainer.task"]
    assert words == shlex.split(command)
    assert task.main(words[3:]) == 0
    best = study / "trials" / f"{int(out.partition('best     trial ')[2].partition(':')[0]):03d}"
    trained = json.loads((study / "best" / "evaluations.json").read_text())
    assert [each["global_step"] for each in trained] == [10, 20, 30]
    for again, before in zip(trained, json.loads((best / "evaluations.json").read_text()), strict=True):
        assert again == pytest.approx(before, rel=1e-5)


def test_the_page_shows_all_trials_and_loads_nothing(whole: tuple[Path, str, str]) -> None:
    page = (whole[0] / "report.html").read_text()
    assert Page(page).tags.count("svg") == 3
    assert "default-src 'none'" in page
    links = [value for name, value in Page(page).attributes if name in ("src", "href") and "xlink" not in name]
    assert [link for link in links if link and not link.startswith("#")] == []  # there are no reports here
    assert all(f"<td>{number}</td>" in page for number in range(1, 6))
    assert "where others were better" in page
    assert "it&#39;s $HOME" in page


def test_a_study_that_has_ended_says_the_same_again(
    whole: tuple[Path, str, str], late: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    space = ["--space", "learning_rate=categorical:0.003:0.004:0.005:0.006:0"]
    told, err = tuned(capsys, arguments(late, whole[0], *space))
    assert "goes on  a study with 5 ended trials" in err
    assert "trial 1 of" not in err
    assert (told["metric"], told["goal"], len(told["trials"])) == ("loss", "minimize", 5)
    assert shlex.join(told["command"]) in whole[1]
    assert told["trials"][4]["state"] == "pruned"
    assert set(told["trials"][4]["evaluations"]) == {"10", "20"}


def test_a_trial_that_is_a_link_is_refused_since_models_are_removed_below_it(
    whole: tuple[Path, str, str], late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    shutil.copytree(whole[0], study)
    (study / "trials" / "005").rename(elsewhere)
    (study / "trials" / "005").symlink_to(elsewhere)
    space = ["--space", "learning_rate=categorical:0.003:0.004:0.005:0.006:0", "--keep_models", "best"]
    told, _ = tuned(capsys, arguments(late, study, *space), code=1)
    assert told["error"].startswith(f"{study}/trials/005: is a link to {elsewhere}; expected a file or folder")
    assert (elsewhere / "export").is_dir()


def test_with_another_training_it_is_another_study(
    whole: tuple[Path, str, str], late: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    space = ["--space", "learning_rate=categorical:0.003:0.004:0.005:0.006:0"]
    told, _ = tuned(capsys, arguments(late, whole[0], *space, steps=50), code=2)
    assert "holds a study with another training" in told["error"]


def test_trials_that_fail_are_told_and_the_others_go_on(
    late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--space", "fate=categorical:nan:killed:fine", "--parallel_trials", "2", "--keep_models", "best"]
    told, err = tuned(capsys, arguments(late, tmp_path / "study", *argv))
    nan, killed, fine = told["trials"]
    assert "trial 1 failed: " in err
    assert "the loss became NaN. Try a lower learning_rate" in nan["why"]
    assert killed["why"] == "was killed, as the kernel does if memory runs out"
    assert (nan["state"], killed["state"], fine["state"]) == ("failed", "failed", "done")
    assert told["best"]["number"] == 3
    left = {path.parent.parent.name for path in (tmp_path / "study").rglob("model.ckpt-*")}
    assert {path.parent.name for path in (tmp_path / "study").rglob("model.ckpt-*.index")} == {"003"}, left
    assert (tmp_path / "study" / "trials" / "001" / "log.txt").exists()
    threads = ["--inter_op_threads", str(max(1, usable_cores() // 2))]
    assert told["command"][3:5] == threads


def test_if_all_trials_fail_the_study_has_failed(
    late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--space", "learning_rate=double:0.1:1", "--hparams", "fate=killed", "--trials", "9"]
    told, err = tuned(capsys, arguments(late, tmp_path / "study", *argv), code=1)
    assert "given up after 5 failed trials: trial 1: was killed" in told["error"]
    assert "trial 6" not in err
    argv = ["--space", "fate=categorical:nan:killed"]
    told, _ = tuned(capsys, arguments(late, tmp_path / "two", *argv), code=1)
    assert "every trial has failed: trial 1: " in told["error"]
    assert "\ntrial 2: was killed" in told["error"]
    assert (tmp_path / "two" / "report.html").exists()


def test_a_metric_that_no_evaluation_has_is_named(
    late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--space", "learning_rate=discrete:0.1:0.2", "--best_metric", "f1", "--failed_trials", "1"]
    told, _ = tuned(capsys, arguments(late, tmp_path / "study", *argv), code=1)
    assert "given up after 1 failed trial: trial 1: the evaluation has no metric 'f1'" in told["error"]


def test_folders_of_trials_without_their_study_are_left_alone(
    late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study" / "trials" / "001").mkdir(parents=True)
    told, _ = tuned(capsys, arguments(late, tmp_path / "study", "--space", "learning_rate=discrete:0.1:0.2"), code=2)
    assert "has trials/ but no study.db" in told["error"]


def test_killed_at_any_time_it_goes_on_where_it_was(
    late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    argv = arguments(late, study, "--space", "learning_rate=discrete:0.01:0.02", "--parallel_trials", "2", steps=200)
    argv += ["--hparams", "fate=slow"]
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen([sys.executable, "-m", "millrace", "tune", *argv], cwd=ROOT, stderr=log, stdout=log)
    try:
        trials = [study / "trials" / name for name in ("001", "002")]
        until(lambda: all((trial / "evaluations.json").exists() for trial in trials), "an evaluation of both trials")
        refused, _ = tuned(capsys, argv, code=2)
        assert "another process is at work on this study" in refused["error"]
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        log.close()
    told, err = tuned(capsys, argv)
    assert "trial 1 was interrupted: it goes on from its last checkpoint" in err
    assert "trial 2 was interrupted: it goes on from its last checkpoint" in err
    assert [(trial["number"], trial["state"]) for trial in told["trials"]] == [(1, "done"), (2, "done")]
    for trial in trials:
        steps = [each["global_step"] for each in json.loads((trial / "evaluations.json").read_text())]
        assert (sorted(set(steps)), steps[0], steps[-1]) == (steps, 10, 200)
        text = (trial / "log.txt").read_text()
        assert text.count("$ ") == 2
    assert sorted(path.name for path in study.iterdir() if not path.name.startswith(".")) == [
        "report.html",
        "study.db",
        "trials",
    ]
    shutil.rmtree(study)


def test_without_a_model_it_is_that_of_the_data_for_all_trials(
    late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--data_dir", late.path, "--study", str(tmp_path), "--max_steps", "10", "--no_report"]
    argv += ["--space", "width=discrete:8:16", "--hparams", "members=2", "depth=1"]
    told, err = tuned(capsys, argv)
    assert [trial["state"] for trial in told["trials"]] == ["done", "done"]
    assert told["command"][told["command"].index("--model") + 1] == "tabular"
    assert "model    tabular, since no --model names another" in err
    assert recorded_model(str(tmp_path)) == "tabular"


def test_when_the_time_is_up_it_stops_and_can_go_on(
    late: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = arguments(late, tmp_path / "study", "--space", "learning_rate=discrete:0.01:0.02")
    told, _ = tuned(capsys, [*argv, "--timeout_hours", "0.0000001"])
    assert told["ended"] == "--timeout_hours 1e-07 are over; run the command again to go on"
    assert told["best"] is None
    assert {trial["state"] for trial in told["trials"]} == {"waiting"}
    assert told["command"] == []
