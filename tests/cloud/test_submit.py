"""Trainings that are submitted to Vertex AI, and trainings in several processes of this machine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from millrace.cli import main
from schemas import storage
from schemas.storage import folders
from tests.support.commands import Ended, ended
from tests.support.processes import until
from tests.support.vertex_service import ENDED, Job, VertexService
from trainer import verify

ROOT = Path(__file__).parents[2]
STEPS = ("--max_steps", "40", "--save_checkpoints_steps", "20", "--seed", "1")
OF_40_STEPS = (*STEPS, "--batch_size", "32")
MODEL = ("--model", "tests.support.own_models:keras_model")


def submit(
    vertex: VertexService, data: str, model_dir: str | None, *flags: str, train: tuple[str, ...] = ()
) -> tuple[Ended, Job]:
    """What the command printed, and the job once it has ended."""
    own = [] if model_dir is None else ["--model_dir", model_dir]
    training = ["train", "--data_dir", f"{data}/data", *own, "--model", "softmax", *OF_40_STEPS, *train]
    done = ended(main, ["submit", "vertex", *vertex.flags(), *flags, "--", *training])
    assert done.code == 0, done.err
    until(lambda: vertex.last.state in ENDED, "the job has ended")
    return done, vertex.last


def log(job: Job) -> str:
    """The job's log."""
    return "\n".join(f"[{line.replica}] {line.text}" for line in job.lines)


def best(model_dir: str) -> str:
    mark = json.loads(storage.read_bytes(f"{model_dir}/export/best/best.json"))
    return f"{model_dir}/export/best/{mark['export']}"


def test_one_machine_trains_a_model_of_ones_own(vertex: VertexService, data: str, bucket: str) -> None:
    """The model is where AIP_MODEL_DIR says."""
    flags = ("--output_dir", f"{bucket}/out", "--labels", "team=forest", "--spot")
    done, job = submit(vertex, data, None, *flags, train=MODEL)
    model_dir = f"{bucket}/out/model"
    assert job.state == "JOB_STATE_SUCCEEDED", log(job)
    assert f"submitted  {job.name}\n" in done.out
    assert f"/locations/us-central1/training/{job.id}?project=tests" in done.out
    assert f"model      {model_dir}\n" in done.out
    place = "--project tests --region us-central1"
    assert f"follow     gcloud ai custom-jobs stream-logs {job.id} {place}" in done.out
    assert f"cancel     gcloud ai custom-jobs cancel {job.id} {place}" in done.out
    assert dict(job.submitted.labels) == {"team": "forest"}
    assert job.submitted.job_spec.scheduling.strategy.name == "SPOT"
    assert re.search(r"\[workerpool0-0\] step 40 \(epoch [\d.]+\): eval .*loss", log(job))
    assert verify.main(["--saved_model", best(model_dir), "--data_dir", f"{data}/data", "--trust"]) == 0
    environment = job.environments["workerpool0-0"]
    assert "TF_CONFIG" not in environment
    assert environment["AIP_MODEL_DIR"] == f"{model_dir}/"


def test_four_pools_train_together_and_the_evaluator_exports(vertex: VertexService, data: str, bucket: str) -> None:
    _, job = submit(vertex, data, f"{bucket}/model", "--workers", "1", "--ps", "1", "--machine_type", "n1-highmem-2")
    assert job.state == "JOB_STATE_SUCCEEDED", log(job)
    assert sorted(job.environments) == [f"workerpool{pool}-0" for pool in range(4)]
    assert json.loads(job.environments["workerpool3-0"]["TF_CONFIG"])["cluster"].keys() == {"chief", "worker", "ps"}
    assert "[workerpool0-0] chief ended at step" in log(job)
    assert re.search(r"\[workerpool3-0\] final +gs://", log(job))
    assert verify.main(["--saved_model", best(f"{bucket}/model"), "--data_dir", f"{data}/data"]) == 0
    ends = [name for name in folders.walk(f"{bucket}/model/replicas") if name.startswith(job.submitted.display_name)]
    assert {Path(name).name for name in ends} >= {"chief-0.json", "evaluator-0.json"}


def test_a_service_that_refuses_is_named_in_one_line(vertex: VertexService, data: str, bucket: str) -> None:
    vertex.status = 403
    try:
        training = ["--", *train(data, f"{bucket}/model")]
        done = ended(main, ["submit", "vertex", *vertex.flags(), "--job_name", "refused", *training])
    finally:
        vertex.status = None
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "the job could not be submitted: " in done.err


def train(data: str, model_dir: str) -> list[str]:
    return ["train", "--data_dir", f"{data}/data", "--model_dir", model_dir, "--model", "softmax", *OF_40_STEPS]


def test_chief_worker_parameter_server_and_evaluator_train_to_an_export(data: str, bucket: str) -> None:
    done = ended(main, ["submit", "local", "--workers", "1", "--ps", "1", "--json", "--", *train(data, f"{bucket}/m")])
    assert done.code == 0, done.err
    assert done.data["exit_codes"] == {"chief-0": 0, "worker-0": 0, "ps-0": 0, "evaluator-0": 0}
    assert "[evaluator-0] final " in done.err
    assert "saved_model.pb" in storage.listdir(best(f"{bucket}/m"))


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
            errors = process.stderr.read()
            assert process.wait(120) == 130, errors
        finally:
            process.kill()
    assert errors.splitlines()[-1] == "error: interrupted; run the command again to resume from the last checkpoint"
    mentioned = f"--model_dir\0{bucket}/m".encode()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mentioned in _read(path)]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
