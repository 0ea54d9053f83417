"""Importing trainer.estimator: which Keras it settles on, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def _python(program: str, *, keras: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a program in a fresh process with TF_USE_LEGACY_KERAS as given."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    if keras is not None:
        environment["TF_USE_LEGACY_KERAS"] = keras
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("keras", "program"),
    [
        (
            None,
            """
            import sys, trainer.estimator, tensorflow as tf
            assert "apache_beam" not in sys.modules and "tensorflow_transform" not in sys.modules
            """,
        ),
        (None, "import tensorflow as tf, trainer.estimator"),
        (None, "import tensorflow as tf, tensorflow_transform, trainer.estimator"),
        ("True", "import tensorflow as tf; tf.keras.Model; import trainer.estimator"),
    ],
    ids=["first", "after TensorFlow", "after tensorflow_transform", "after Keras 2 was used"],
)
def test_tf_keras_is_keras_2(keras: str | None, program: str) -> None:
    check = """
    import tf_keras
    from tensorflow.keras.layers import Dense
    assert tf.keras.Model is tf.compat.v1.keras.Model is tf_keras.Model, tf.keras.Model
    assert tf.optimizers.legacy.Adam is tf_keras.optimizers.legacy.Adam
    assert Dense is tf_keras.layers.Dense
    """
    lines = [line.strip() for line in (program + "\n" + check).splitlines()]

    run = _python("\n".join(lines), keras=keras)

    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.parametrize(
    ("keras", "program", "message"),
    [
        ("0", "import trainer.estimator", "TF_USE_LEGACY_KERAS=0 in the environment: Estimator needs Keras 2"),
        (
            None,
            "import tensorflow as tf; tf.keras.Model; import trainer.estimator",
            "tf.keras was used, as Keras 3, before trainer.estimator was imported",
        ),
    ],
    ids=["by the environment", "by an earlier import"],
)
def test_keras_3_is_refused(keras: str | None, program: str, message: str) -> None:
    run = _python(program, keras=keras)

    assert run.returncode == 1
    assert message in run.stderr.splitlines()[-1]
    assert "UsageError" in run.stderr.splitlines()[-1]
