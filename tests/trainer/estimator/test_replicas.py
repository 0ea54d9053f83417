"""Synchronous replicas by MirroredStrategy, on two logical CPUs of one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from trainer.estimator import tf_estimator

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_two_replicas_train_one_model(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.estimator_replicas", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-5000:]
    result = json.loads(run.stdout)
    assert result["weights_on"] == ["CPU:0", "CPU:1"]
    assert result["global_step"] == 60
    assert result["loss"][1] < result["loss"][0]
    assert result["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("train_distribute", "OneDeviceStrategy on several machines is not supported"),
        ("experimental_distribute", "pass train_distribute and eval_distribute"),
    ],
)
def test_a_strategy_over_several_machines_is_refused(
    monkeypatch: pytest.MonkeyPatch, option: str, message: str
) -> None:
    cluster = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))

    with pytest.raises(NotImplementedError, match=message):
        tf_estimator.RunConfig(**{option: tf.distribute.OneDeviceStrategy("/cpu:0")})
