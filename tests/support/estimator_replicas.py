"""Trains on two replicas, two logical CPUs of this process; prints the result as a line of JSON. A test runs it.

It runs in its own process, because logical devices are created before TensorFlow's first operation. The all-reduce that
MirroredStrategy picks by default deadlocks between logical CPUs; ReductionToOneDevice does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

from tests.support.estimator_problem import eval_input, logistic_estimator, train_input
from trainer.estimator import tf_estimator


def main(model_dir: Path) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    weights_on: list[str] = []

    class FindWeights(tf_estimator.SessionRunHook):
        def begin(self) -> None:
            handles = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == "VarHandleOp"]
            weights_on.extend(op.device[-5:] for op in handles if op.name.startswith("logistic/weights"))

    estimator = logistic_estimator(
        model_dir, train_distribute=strategy, session_config=tf.compat.v1.ConfigProto(device_count={"CPU": 2})
    )
    before = estimator.train(train_input(), steps=1).evaluate(eval_input())
    after = estimator.train(train_input(), max_steps=60, hooks=[FindWeights()]).evaluate(eval_input())
    print(
        json.dumps(
            {
                "weights_on": sorted(weights_on),
                "global_step": int(after["global_step"]),
                "loss": [float(before["loss"]), float(after["loss"])],
                "accuracy": float(after["accuracy"]),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
