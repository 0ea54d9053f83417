"""Studies that are submitted to Vertex AI: their trials train on its machines, and the best one is told."""

from __future__ import annotations

import json
import re

import pytest

from millrace.cli import main
from schemas import storage
from tests.support.submitting import Ended, ended
from tests.support.vertex_service import VertexService

TRAIN = ("--model", "softmax", "--max_steps", "40", "--save_checkpoints_steps", "20", "--seed", "1")


def tune(vertex: VertexService, data: str, *flags: str, data_dir: str = "data") -> Ended:
    train = ["train", "--data_dir", f"{data}/{data_dir}", *TRAIN, "--best_metric", "loss"]
    study = ["--output_dir", f"{data}/study", "--trials", "2", *flags]
    return ended(main, ["submit", "vertex", *vertex.flags(data), *study, "--", *train])


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
