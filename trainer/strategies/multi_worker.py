"""All-reduce across machines: the chief and the workers take every step together, each with its share of the batch.

No task goes on without the others. So they wait for each other at the beginning, agree on when to stop, and all end
when one is lost; a training that is started again resumes from the last checkpoint.

A worker begins as soon as the chief has initialized the variables.

Estimator lets a worker wait some seconds for each worker before it. One that finds the variables uninitialized all the
same looks again only after 30 s, in which the others may have done all the steps.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from schemas import interrupts
from schemas.errors import MillraceError
from trainer.estimator import tf_estimator
from trainer.estimator.all_reduce import TaskLost, is_all_reduce

EVERY_SECS = 0.5
ANSWER_MS = 5000  # of a parameter server that may not have started yet


def wait_for_chief(config: Any) -> None:
    """Returns when the variables on the parameter servers are initialized.

    Args:
      config: the `RunConfig` of a worker in a cluster with parameter servers.
    """
    addresses = config.cluster_spec.as_dict().get("ps", [])
    while addresses and not initialized(addresses[0]):
        interrupts.check()
        time.sleep(EVERY_SECS)


def initialized(address: str) -> bool:
    """Whether the first parameter server, which has the global step, has a value for it."""
    settings = tf.compat.v1.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=ANSWER_MS)
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        step = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=tf.compat.v1.GraphKeys.GLOBAL_STEP)
        initialized = tf.raw_ops.VarIsInitializedOp(resource=step)
        try:
            with tf.compat.v1.Session(f"grpc://{address}", config=settings) as session:
                return bool(session.run(initialized))
        except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError):
            return False


CONNECT_SECS = 5.0
WATCH_SECS, SILENT = 4.0, 3  # a task that does not answer so many times is lost
STEP_SECONDS = 600.0  # a step that takes longer waits for a task that is lost without a trace
_ABORTED = "Collective ops is aborted"


def addresses(config: Any, *, chief_only: bool = False) -> dict[str, str]:
    """HOST:PORT of the other tasks that train, by name, such as `worker-0`.

    Args:
      config: the `RunConfig` of one of them.
      chief_only: leave out the workers.
    """
    jobs = {"chief": config.cluster_spec.as_dict()["chief"]}
    if not chief_only:
        jobs["worker"] = config.cluster_spec.as_dict().get("worker", [])
    found = {f"{job}-{index}": host for job, hosts in jobs.items() for index, host in enumerate(hosts)}
    found.pop(f"{config.task_type}-{config.task_id}", None)
    return found


def wait_for(tasks: dict[str, str], tell: Callable[[str], None]) -> None:
    """Returns when the servers of these tasks answer. Interrupts end the wait; a step would keep them waiting."""
    told = False
    while missing := unreachable(tasks):
        if not told:
            tell(f"waiting for {', '.join(f'{task} ({host})' for task, host in missing.items())}")
            told = True
        interrupts.check()
        time.sleep(EVERY_SECS)


def unreachable(tasks: dict[str, str]) -> dict[str, str]:
    """Those of the tasks on whose port nobody listens."""
    return {task: host for task, host in tasks.items() if not _listens(host)}


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECS).close()
    except OSError:
        return False
    return True


class WithOthers(tf.compat.v1.train.SessionRunHook):
    """Waits until the servers of all tasks answer, and ends the training when one does not any more.

    An operation that waits for a task which is gone may do so for good, if it began after that.
    """

    def __init__(self, config: Any, tell: Callable[[str], None]) -> None:
        self._tasks, self._tell = addresses(config), tell
        self._chief = addresses(config, chief_only=True)
        self._model_dir = config.model_dir
        self._step: Any = None
        self._last = 0
        self._ended = threading.Event()

    def begin(self) -> None:
        wait_for(self._tasks, self._tell)
        self._step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        threading.Thread(target=self._watch, args=[session], daemon=True).start()

    def end(self, session: Any) -> None:
        self._ended.set()
        self._last = int(session.run(self._step))

    def wait_for_last_checkpoint(self) -> None:
        """Returns in a worker when the chief has saved the last step, for which it may need this task."""
        deadline = time.monotonic() + STEP_SECONDS
        while self._chief and time.monotonic() < deadline and not unreachable(self._chief):
            checkpoint = tf.train.latest_checkpoint(self._model_dir)
            if checkpoint and int(tf.train.load_variable(checkpoint, "global_step")) >= self._last:
                return
            interrupts.check()
            time.sleep(EVERY_SECS)

    def _watch(self, session: Any) -> None:
        silent = 0
        while not self._ended.wait(WATCH_SECS):
            silent = silent + 1 if unreachable(self._tasks) else 0
            if silent == SILENT and not self._ended.is_set():
                session.close()  # which ends its step by a CancelledError
                return


class StopTogether(tf.compat.v1.train.SessionRunHook):
    """Stops all tasks at the same step, if one of them wants to.

    Args:
      wants: whether this task wants to stop, of the step.
      every: the tasks ask each other after every so many steps.
    """

    def __init__(self, wants: Callable[[int], bool], *, every: int) -> None:
        self._wants, self._every = wants, every
        self._steps: Any = None
        self._vote: Any = None
        self._votes: Any = None
        self._step = 0

    def begin(self) -> None:
        self._steps = tf.compat.v1.train.get_global_step()
        self._vote = tf.compat.v1.placeholder(tf.float32, [])
        self._votes = tf.distribute.get_strategy().reduce(tf.distribute.ReduceOp.SUM, self._vote, axis=None)

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._step = int(session.run(self._steps))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._step += 1  # a read beside the step's own operations may come before or after its update
        if self._step % self._every:
            return
        vote = float(self._wants(self._step))
        if run_context.session.run(self._votes, {self._vote: vote}):
            run_context.request_stop()


@contextlib.contextmanager
def explained(config: Any) -> Iterator[None]:
    """Where a task trains: an error that comes of a task that was lost says so.

    Raises:
      MillraceError: another task has ended, or does not answer any more.
    """
    if not is_all_reduce(config):
        yield
        return
    try:
        yield
    except TaskLost as error:
        raise _lost(config, "") from error
    except tf.errors.DeadlineExceededError as error:
        raise _lost(config, f"for {STEP_SECONDS:.0f} s there was no step") from error
    except tf.errors.OpError as error:
        cancelled = isinstance(error, tf.errors.CancelledError) and unreachable(addresses(config))
        if cancelled or _ABORTED in str(error.message):
            raise _lost(config, "") from error
        raise


def _lost(config: Any, what: str) -> MillraceError:
    missing = unreachable(addresses(config))
    named = ", ".join(f"{task} ({host}) does not answer" for task, host in missing.items())
    found = "; ".join(filter(None, [what, named])) or "the connection to another task broke"
    return MillraceError(
        f"--strategy multi_worker: {config.task_type}-{config.task_id}: {found}. All tasks take each step together, so "
        "training cannot go on without it; start all of them again, and they resume from the last checkpoint"
    )


def as_multi_worker(estimator: Any) -> Any:
    """The same Estimator, of which nothing but the model's own hook saves checkpoints, and only the chief summaries.

    TensorFlow would have each worker write its own into a folder of the model directory.
    """
    own = estimator.config
    if not is_all_reduce(own):
        return estimator
    left_out: dict[str, Any] = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}
    if not own.is_chief:
        left_out |= {"save_summary_steps": None, "log_step_count_steps": None}

    @functools.wraps(estimator.model_fn)
    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        return estimator.model_fn(features, labels, mode, own)

    return tf_estimator.Estimator(
        model_fn,
        config=own.replace(**left_out),
        warm_start_from=estimator._warm_start_settings,  # private: there is no public accessor
    )
