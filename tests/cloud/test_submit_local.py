"""Trainings in several processes of this machine, with the data in a bucket."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from millrace.cli import main
from schemas import storage
from tests.support.submitting import ended

ROOT = Path(__file__).parents[2]


def train(data: str, model_dir: str, *flags: str) -> list[str]:
    given = [
        "train",
        "--data_dir",
        f"{data}/data",
        "--model_dir",
        model_dir,
        "--model",
        "softmax",
        "--batch_size",
        "32",
    ]
    return [*given, "--max_steps", "40", "--save_checkpoints_steps", "20", *flags]


def test_chief_worker_parameter_server_and_evaluator_train_to_an_export(data: str, bucket: str) -> None:
    done = ended(main, ["submit", "local", "--workers", "1", "--ps", "1", "--json", "--", *train(data, f"{bucket}/m")])
    assert done.code == 0, done.err
    assert done.data["exit_codes"] == {"chief-0": 0, "worker-0": 0, "ps-0": 0, "evaluator-0": 0}
    assert "[evaluator-0] final " in done.err
    mark = json.loads(storage.read_bytes(f"{bucket}/m/export/best/best.json"))
    assert "saved_model.pb" in storage.listdir(f"{bucket}/m/export/best/{mark['export']}")


def test_a_process_that_fails_ends_the_others_and_is_named(data: str, bucket: str) -> None:
    done = ended(main, ["submit", "local", "--workers", "1", "--ps", "1", "--", *train(bucket, f"{bucket}/m")])
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert re.match(r"error: \w+-0: ended with exit code 2; the other processes were ended: gs://", last), done.err
    assert "no manifest.json" in last


def test_ctrl_c_ends_all_processes(data: str, bucket: str) -> None:
    argv = ["submit", "local", "--ps", "1", "--", *train(data, f"{bucket}/m")]
    command = [sys.executable, "-m", "millrace", *argv]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            next(line for line in process.stderr if line.startswith("[chief-0] starting TensorFlow"))
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(120) == 130, said
        finally:
            process.kill()
    assert said.splitlines()[-1] == "error: interrupted; run the command again to resume from the last checkpoint"
    mentioned = f"--model_dir\0{bucket}/m".encode()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mentioned in _read(path)]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
