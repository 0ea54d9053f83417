"""Trainings and studies that are submitted to Vertex AI, and trainings in several processes of this machine."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cli import main
from millrace.submit import vertex_job
from schemas import storage
from schemas.storage import folders
from tests.support.commands import Ended, ended
from tests.support.predicted import read_lines
from tests.support.processes import until
from tests.support.vertex_service import ENDED, VertexService
from trainer import verify

ROOT = Path(__file__).parents[2]
STEPS = ("--max_steps", "40", "--save_checkpoints_steps", "20", "--seed", "1")
OF_40_STEPS = (*STEPS, "--batch_size", "32")
MODEL = ("--model", "forest_models:keras_model")


def submit(vertex: VertexService, data: str, model_dir: str | None, *flags: str, train: tuple[str, ...] = ()) -> Ended:
    return ended(main, argv(vertex, data, model_dir, *flags, train=train))


def argv(
    vertex: VertexService, data: str, model_dir: str | None, *flags: str, train: tuple[str, ...] = ()
) -> list[str]:
    own = [] if model_dir is None else ["--model_dir", model_dir]
    given = ["train", "--data_dir", f"{data}/data", *own, "--model", "softmax", *OF_40_STEPS, *train]
    return ["submit", "vertex", *vertex.flags(data), *flags, "--", *given]


def best(model_dir: str) -> str:
    mark = json.loads(storage.read_bytes(f"{model_dir}/export/best/best.json"))
    return f"{model_dir}/export/best/{mark['export']}"


def wheel_of_a_model(folder: Path) -> Path:
    """A wheel whose module `forest_models` is that of `own_models`."""
    wheel = folder / "forest-1-py3-none-any.whl"
    described = {"METADATA": "Metadata-Version: 2.1\nName: forest\nVersion: 1\n", "RECORD": ""}
    described["WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("forest_models.py", (ROOT / "tests/support/own_models.py").read_text())
        for name, text in described.items():
            archive.writestr(f"forest-1.dist-info/{name}", text)
    return wheel


def test_one_machine_trains_a_model_of_ones_own_by_the_staged_packages(
    vertex: VertexService, data: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is where AIP_MODEL_DIR says, and the tuner's file has a line for each evaluation."""
    wheel = str(wheel_of_a_model(tmp_path))
    own = ("--package", wheel)
    metrics = tmp_path / "hypertune" / "output.metrics"
    variables = (f"CLOUD_ML_HP_METRIC_FILE={metrics}", "CLOUD_ML_TRIAL_ID=4")
    done = submit(vertex, data, None, "--output_dir", f"{bucket}/out", "--env", *variables, "--json", *own, train=MODEL)
    assert done.code == 0, done.err
    job, model_dir = vertex.last, f"{bucket}/out/model"
    assert (done.data["job"], done.data["state"], done.data["model_dir"]) == (job.name, "SUCCEEDED", model_dir)
    first, second, *_ = done.err.splitlines()
    assert first == f"job        {job.name}"
    assert f"/locations/us-central1/training/{job.id}?project=tests" in second
    assert "state      SUCCEEDED" in done.err
    assert re.search(r"\[workerpool0-0\] step 40 \(epoch [\d.]+\): eval .*loss", done.err)
    monkeypatch.syspath_prepend(wheel)  # to check the export here
    assert verify.main(["--saved_model", best(model_dir), "--data_dir", f"{data}/data", "--trust"]) == 0

    staged = storage.listdir(f"{data}/staging/millrace-submit/{job.submitted.display_name}")
    assert [name.partition("-")[0] for name in staged] == ["forest", "millrace_ml"]
    environment = job.environments["workerpool0-0"]
    assert "TF_CONFIG" not in environment
    assert "PYTHONPATH" not in environment
    assert environment["AIP_MODEL_DIR"] == f"{model_dir}/"
    reported = read_lines(metrics)
    assert [(line["trial"], line["global_step"]) for line in reported] == [("4", "20"), ("4", "40")]
    evaluations = json.loads(storage.read_bytes(f"{model_dir}/evaluations.json"))
    assert [float(line["average_loss"]) for line in reported] == [each["average_loss"] for each in evaluations]


def test_four_pools_train_together_and_the_evaluator_exports(vertex: VertexService, data: str, bucket: str) -> None:
    done = submit(vertex, data, f"{bucket}/model", "--workers", "1", "--ps", "1", "--machine_type", "ps=n1-highmem-2")
    assert done.code == 0, done.err
    job = vertex.last
    assert sorted(job.environments) == [f"workerpool{pool}-0" for pool in range(4)]
    assert json.loads(job.environments["workerpool3-0"]["TF_CONFIG"])["cluster"].keys() == {"chief", "worker", "ps"}
    assert "[workerpool0-0] chief ended at step" in done.err
    assert re.search(r"\[workerpool3-0\] final +gs://", done.err)
    assert verify.main(["--saved_model", best(f"{bucket}/model"), "--data_dir", f"{data}/data"]) == 0
    ends = [name for name in folders.walk(f"{bucket}/model/replicas") if name.startswith(job.submitted.display_name)]
    assert {Path(name).name for name in ends} >= {"chief-0.json", "evaluator-0.json"}


def test_a_training_that_fails_there_fails_here(vertex: VertexService, bucket: str) -> None:
    done = submit(vertex, bucket, f"{bucket}/model")  # where there is no dataset
    assert done.code == 1
    assert "[workerpool0-0] error: " in done.err
    last = done.err.splitlines()[-1]
    assert last.startswith(f"error: {vertex.last.name}: ended in the state FAILED: The replica workerpool0-0 exited")
    assert "Traceback" not in done.err


def test_a_job_that_is_not_waited_for_goes_on(vertex: VertexService, data: str, bucket: str) -> None:
    with vertex.queueing():
        done = submit(vertex, data, f"{bucket}/model", "--no_wait", "--json", "--labels", "team=forest", "--spot")
        job = vertex.last
        assert done.code == 0, done.err
        assert (done.data["job"], done.data["state"], job.state) == (job.name, "PENDING", "JOB_STATE_PENDING")
        assert dict(job.submitted.labels) == {"team": "forest"}
        assert job.submitted.job_spec.scheduling.strategy.name == "SPOT"
        vertex.cancel(job)


def test_a_job_that_another_cancels_fails_here(vertex: VertexService, data: str, bucket: str) -> None:
    with vertex.queueing(), follower(argv(vertex, data, f"{bucket}/model"), vertex) as process:
        vertex.cancel(vertex.last)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert "ended in the state CANCELLED" in said


@contextlib.contextmanager
def follower(argv: list[str], vertex: VertexService) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, once its job is there and is followed."""
    known = len(vertex.jobs)
    command = [sys.executable, "-m", "millrace", *argv]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: len(vertex.jobs) > known or process.poll() is not None, "the job is submitted")
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("state "):
                    break
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("what", "ends"), [("cancel", True), ("leave", False), ("ask", True)])
def test_ctrl_c_does_with_the_job_what_was_asked_for(
    vertex: VertexService, data: str, bucket: str, what: str, ends: bool
) -> None:
    """Without a terminal there is nobody to ask, and the job is cancelled, as that of a dataset is."""
    with vertex.queueing():
        with follower(argv(vertex, data, f"{bucket}/model", "--on_interrupt", what), vertex) as process:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=120)
        job = vertex.last
        assert process.returncode == 130, said
        assert f"interrupted; {job.name} {'is being cancelled' if ends else 'goes on'}" in said
        assert "Traceback" not in said
        assert (job.state in ENDED) == ends
        vertex.cancel(job)


def test_a_service_that_refuses_leaves_nothing_staged(vertex: VertexService, data: str, bucket: str) -> None:
    vertex.status = 403
    try:
        done = submit(vertex, data, f"{bucket}/model", "--job_name", "refused")
    finally:
        vertex.status = None
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "the job could not be submitted: " in done.err
    assert storage.listdir(f"{data}/staging/millrace-submit/refused") == []


def test_a_service_that_stops_answering_is_given_up_and_the_job_goes_on(
    vertex: VertexService, data: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vertex_job, "ANSWER_SECONDS", 20.0)
    create = vertex_job.VertexJobs.create

    def create_and_stop(jobs: vertex_job.VertexJobs, job: dict[str, object]) -> str:
        name = create(jobs, job)
        vertex.status = 503
        return name

    monkeypatch.setattr(vertex_job.VertexJobs, "create", create_and_stop)
    with vertex.queueing():
        try:
            done = submit(vertex, data, f"{bucket}/model")
        finally:
            vertex.status = None
        assert done.code == 1
        assert "its state cannot be asked for" in done.err.splitlines()[-1]
        assert "; the job goes on: https://console.cloud.google.com/" in done.err.splitlines()[-1]
        assert vertex.last.state == "JOB_STATE_PENDING"
        vertex.cancel(vertex.last)


def test_without_its_log_a_job_is_still_followed(vertex: VertexService, bucket: str) -> None:
    vertex.log_status = 403
    try:
        done = submit(vertex, bucket, f"{bucket}/model")
    finally:
        vertex.log_status = None
    assert done.code == 1
    assert done.err.count("the log cannot be read") == 1
    assert "ended in the state FAILED" in done.err


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


def tune(vertex: VertexService, data: str, *flags: str, data_dir: str = "data") -> Ended:
    given = ["train", "--data_dir", f"{data}/{data_dir}", "--model", "softmax", *STEPS, "--best_metric", "loss"]
    study = ["--output_dir", f"{data}/study", "--trials", "2", *flags]
    return ended(main, ["submit", "vertex", *vertex.flags(data), *study, "--", *given])


def test_each_trial_trains_with_its_values_and_the_best_is_told(vertex: VertexService, data: str) -> None:
    values = ("learning_rate=double:0.0001:0.1:log", "batch_size=discrete:16:32")
    done = tune(vertex, data, "--tune", *values, "--json")
    assert done.code == 0, done.err
    study = vertex.last_study
    pools = [job.submitted.job_spec.worker_pool_specs[0] for job in study.trial_jobs]
    appended = [list(pool.container_spec.args) for pool in pools]
    assert sorted(appended) == [
        ["--learning_rate=0.0001", "--batch_size=16"],
        ["--learning_rate=0.1", "--batch_size=32"],
    ]
    assert sorted(job.environments["workerpool0-0"]["CLOUD_ML_TRIAL_ID"] for job in study.trial_jobs) == ["1", "2"]

    losses = {}
    for trial, (rate, size) in {"1": (0.0001, 16), "2": (0.1, 32)}.items():
        folder = f"{data}/study/{trial}/model"
        assert json.loads(storage.read_bytes(f"{folder}/model.json"))["current"]["hparams"]["learning_rate"] == rate
        evaluations = json.loads(storage.read_bytes(f"{folder}/evaluations.json"))
        losses[trial] = min(each["loss"] for each in evaluations)
        (found,) = (each for each in done.data["trials"] if each["id"] == trial)
        assert found["parameters"] == {"learning_rate": rate, "batch_size": size}
        assert (found["state"], found["value"]) == ("SUCCEEDED", pytest.approx(losses[trial]))
        assert re.search(rf"\[trial {trial} workerpool0-0\] step 40 \(epoch [\d.]+\): eval loss", done.err)
    best = min(losses, key=lambda trial: losses[trial])
    assert (done.data["job"], done.data["metric"], done.data["best"]["id"]) == (study.name, "loss", best)
    assert done.data["model_dir"] == f"{data}/study/{best}/model"
    assert storage.exists(f"{done.data['model_dir']}/export/best/best.json")


def test_a_study_of_which_all_trials_fail_fails_here(vertex: VertexService, data: str) -> None:
    done = tune(vertex, data, "--tune", "learning_rate=double:0.1:0.2", data_dir="nothing")
    assert done.code == 1
    assert "[trial 1 workerpool0-0] error: " in done.err
    assert "trial      1  infeasible (The replica workerpool0-0 exited with a non-zero status of 2.)" in done.err
    study = vertex.last_study
    assert done.err.splitlines()[-1] == f"error: {study.name}: ended in the state FAILED: 2 trials have failed."


def test_a_study_that_is_not_waited_for_goes_on(
    vertex: VertexService, data: str, capsys: pytest.CaptureFixture
) -> None:
    with vertex.queueing():
        done = tune(vertex, data, "--tune", "learning_rate=double:0.1:0.2", "--no_wait", "--failed_trials", "1")
        study = vertex.last_study
        assert done.code == 0, done.err
        assert done.out.splitlines()[-1].endswith(
            f"gcloud ai hp-tuning-jobs stream-logs {study.id} --project tests --region us-central1"
        )
        assert study.submitted.max_failed_trial_count == 1
        vertex.cancel(study)
