"""Where predictions go: standard output, or a file that appears whole or not at all, in place of nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_jobs.predicting import options as bulk_options
from schemas.interrupts import Terminated, interruptible
from schemas.storage import folders
from tests.support.processes import InterruptedAndSilent, until
from trainer import predict
from trainer.predicting.options import PredictionCounts, PredictOptions
from trainer.predicting.output import TextFile, atomic_output


@pytest.fixture
def command(titanic_model) -> Callable[..., list[str]]:
    """The arguments that predict on some inputs."""

    def arguments(*inputs: object, output: object, more: tuple[object, ...] = ()) -> list[str]:
        argv = ["--saved_model", titanic_model.export, "--output", output, *more, "--input", *inputs]
        return [str(arg) for arg in argv]

    return arguments


def start(argv: list[str], folder: Path) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-m", "trainer.predict", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def long_csv(titanic_csv, tmp_path) -> Path:
    """500,000 rows."""
    head, *lines = titanic_csv.read_text().splitlines(keepends=True)
    path = tmp_path / "long.csv"
    path.write_text(head + "".join(lines) * 500)
    return path


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def link_to_a_file(path: Path) -> None:
    (path.parent / "file").write_text("precious")
    path.symlink_to("file")


class TestWhatPredicts:
    def test_a_model_directory_stands_for_its_best_export(self, titanic_model, titanic_csv, tmp_path, capfd) -> None:
        printed: list[str] = []
        for model_flags in (["--saved_model", titanic_model.export], ["--model_dir", titanic_model.model_dir]):
            rejects = tmp_path / str(len(printed))
            argv = [str(arg) for arg in (*model_flags, "--input", titanic_csv, "--output", "-", "--rejects", rejects)]
            assert predict.main(argv) == 0
            printed.append(capfd.readouterr().out)
        assert printed[0] == printed[1] != ""

    @pytest.mark.parametrize("path", ["{0}/export/best", "{1}/"])
    def test_so_do_a_folder_of_exports_and_the_export(self, path, titanic_model) -> None:
        folder, export = path.format(titanic_model.model_dir, titanic_model.export), str(titanic_model.export)
        assert PredictOptions(model_dir=folder, inputs=("a.csv",)).export == export
        argv = ["--model_dir", folder, "--input", "a.csv", "--output", "out"]
        assert bulk_options.parse(argv).export == export

    @pytest.mark.parametrize(
        ("model_flags", "message"),
        [
            ([], "required: either --model_dir or --saved_model"),
            (["--model_dir", "m", "--saved_model", "s"], "required: either --model_dir or --saved_model"),
            (["--model_dir", "m"], "m: no such folder; expected a model directory, an export, or a folder of exports"),
        ],
    )
    def test_it_is_named_once(self, model_flags, message, titanic_csv, tmp_path, monkeypatch, capfd) -> None:
        monkeypatch.chdir(tmp_path)
        assert predict.main([*model_flags, "--input", str(titanic_csv)]) == 2
        assert message in capfd.readouterr().err


class TestNoFile:
    @pytest.mark.parametrize(
        ("put", "which"), [(pipe, "--output"), (folder, "--rejects"), (link_to_a_file, "--output")]
    )
    def test_what_a_file_would_replace_is_refused_and_stays(self, command, titanic_csv, tmp_path, capsys, put, which):
        path = tmp_path / "p.jsonl"
        put(path)
        mode = path.lstat().st_mode
        paths = {"--output": tmp_path / "other.jsonl", "--rejects": tmp_path / "rejects.jsonl", which: path}
        argv = command(titanic_csv, output=paths["--output"], more=("--rejects", paths["--rejects"], "--overwrite"))
        assert predict.main(argv) == 2
        err = capsys.readouterr().err
        assert f"{path}: is a " in err
        assert "give --output - for standard output" in err
        assert path.lstat().st_mode == mode
        assert not (tmp_path / "other.jsonl").exists()

    @pytest.mark.parametrize("spelled", ["{0}/../{1}/raw.csv", "{0}/hard.csv"])
    def test_an_input_is_not_overwritten_however_it_is_spelled(self, command, titanic_csv, tmp_path, capsys, spelled):
        raw = tmp_path / "raw.csv"
        raw.write_bytes(titanic_csv.read_bytes())
        os.link(raw, tmp_path / "hard.csv")
        path = spelled.format(tmp_path, tmp_path.name)
        assert predict.main(command(raw, output=path, more=("--overwrite",))) == 2
        assert f"{path}: is both an input and an output" in capsys.readouterr().err
        assert raw.read_bytes() == titanic_csv.read_bytes()


class TestStandardOutput:
    def test_the_predictions_and_nothing_else(self, command, titanic_csv, tmp_path, monkeypatch, capfd):
        monkeypatch.chdir(tmp_path)
        assert predict.main(command(titanic_csv, output="p.jsonl")) == 0
        capfd.readouterr()
        assert predict.main(command(titanic_csv, output="-")) == 0
        out, err = capfd.readouterr()
        assert out == Path("p.jsonl").read_text()
        assert "predicted  1,000: standard output" in err
        assert set(os.listdir(tmp_path)) == {"p.jsonl", "p.rejects.jsonl", "predictions.rejects.jsonl"}

    def test_rejects_go_to_a_file(self, command, titanic_csv, tmp_path, capsys):
        assert predict.main(command(titanic_csv, output=tmp_path / "p.jsonl", more=("--rejects", "-"))) == 2
        assert "--rejects -: only --output can be standard output" in capsys.readouterr().err

    def test_too_many_rejects_after_part_was_printed(self, command, titanic_csv, tmp_path, capfd):
        (tmp_path / "dirty.csv").write_text(titanic_csv.read_text() + "too,few\n")
        argv = command(tmp_path / "dirty.csv", output="-", more=("--max_rejects", 0, "--max_reject_fraction", 0))
        assert predict.main([*argv, "--rejects", str(tmp_path / "r.jsonl")]) == 1
        out, err = capfd.readouterr()
        assert len(out.splitlines()) == 1000
        assert "only part of the predictions was printed" in err

    @pytest.mark.slow
    def test_a_closed_pipe_ends_it_with_one_line(self, command, long_csv, tmp_path):
        process = start(command(long_csv, output="-"), tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b'{"source"')
        process.stdout.close()
        _, err = process.communicate(timeout=300)
        assert err.decode().splitlines()[-1] == "error: standard output: closed before all predictions were written"
        assert process.returncode == 1
        assert b"Traceback" not in err
        assert b"Exception" not in err
        assert os.listdir(tmp_path) == ["long.csv"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "reason"), [(signal.SIGTERM, b"terminated"), (signal.SIGINT, b"interrupted")])
def test_a_signal_leaves_nothing(command, long_csv, tmp_path, number, reason):
    process = start(command(long_csv, output=tmp_path / "p.jsonl"), tmp_path)

    def has_begun() -> bool:
        assert process.poll() is None
        return any(path.stat().st_size for path in tmp_path.glob(".p.jsonl.*.tmp"))

    until(has_begun, "predictions are written")
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert reason + b": no predictions were written" in err
    assert os.listdir(tmp_path) == ["long.csv"]


def test_a_dropped_interrupt_ends_it_at_the_next_batch(command, titanic_csv, tmp_path):
    batches = []

    def progress(summary: PredictionCounts) -> None:
        batches.append(summary.read)
        InterruptedAndSilent(signal.SIGTERM)

    argv = command(titanic_csv, output=tmp_path / "p.jsonl")
    options = PredictOptions(
        saved_model=argv[1], inputs=(str(titanic_csv),), output=argv[3], rejects=f"{argv[3]}.rejects", batch_size=100
    )
    with pytest.raises(Terminated), interruptible(sigterm=True):
        predict.predict(options, progress=progress)
    assert len(batches) == 1
    assert not list(tmp_path.iterdir())


def test_it_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in their order; each is done."""
    calls: list[str] = []
    fsync, move, flush_name = os.fsync, folders.move, folders.flush_name

    def recorded_fsync(handle: int) -> None:
        calls.append(f"fsync {os.fstat(handle).st_size}")
        fsync(handle)

    def recorded_move(source: str, target: str) -> None:
        calls.append("move")
        move(source, target)

    def recorded_flush(path: str) -> None:
        calls.append(f"name {path}")
        flush_name(path)

    aside = TextFile(str(tmp_path / "p.jsonl"))
    aside.write("12345")
    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(folders, "move", recorded_move)
    monkeypatch.setattr(folders, "flush_name", recorded_flush)
    aside.commit()
    aside.close()
    assert calls[:3] == ["fsync 5", "move", f"name {tmp_path}/p.jsonl"]


def test_without_commit_nothing_is_left(tmp_path: Path) -> None:
    with atomic_output(str(tmp_path / "made" / "p.jsonl")) as file:
        file.write("x")
    assert list((tmp_path / "made").iterdir()) == []
