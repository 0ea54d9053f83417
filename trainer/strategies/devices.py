"""The devices that replicas of a model train on: GPUs, or parts of the CPU that TensorFlow takes for devices."""

from __future__ import annotations

import tensorflow as tf

from schemas.errors import UsageError


def split_cpu(count: int | None) -> None:
    """Makes this machine's CPU `count` devices that share its cores. Does nothing for None, or the second time.

    Raises:
      UsageError: TensorFlow has already run something in this process, with another number of devices.
    """
    if count is None:
        return
    try:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:  # the devices are settled
        found = len(tf.config.list_logical_devices("CPU"))
        if found != count:
            raise UsageError(
                f"--logical_cpus {count}: TensorFlow has already started in this process, with {found}; use a process "
                "of its own for this training"
            ) from None


def replica_devices(num_gpus: int | None) -> tuple[str, ...]:
    """The devices of the replicas: the GPUs; on a machine without one, the logical CPUs.

    Args:
      num_gpus: how many GPUs to use; None: all.

    Raises:
      UsageError: there are fewer, or the CPU is the only device.
    """
    count = count_gpus(num_gpus)
    gpus, cpus = (tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU"))
    if not gpus and len(cpus) < 2:
        raise UsageError(
            "--strategy mirrored: TensorFlow finds no GPU on this machine. Train with --strategy none, or try replicas "
            "on the CPU with --logical_cpus 2."
        )
    return tuple(device.name for device in (gpus[:count] if gpus else cpus))


def count_gpus(asked: int | None) -> int:
    """How many GPUs train: as many as asked for, or all of this machine.

    Raises:
      UsageError: there are fewer.
    """
    found = len(tf.config.list_logical_devices("GPU"))
    if asked is not None and asked > found:
        raise UsageError(f"--num_gpus {asked}: TensorFlow finds {found} GPUs on this machine")
    return found if asked is None else asked


def check_bfloat16() -> None:
    """Refuses mixed precision where it is not bfloat16.

    Raises:
      UsageError: there is a GPU.
    """
    if tf.config.list_physical_devices("GPU"):
        raise UsageError(
            "--mixed_precision: on a GPU, TensorFlow rewrites a graph to float16 only, in which small gradients become "
            "0 unless the loss is scaled, and Estimator's optimizers scale none. Train without it."
        )
