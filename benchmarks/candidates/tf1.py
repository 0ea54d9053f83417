"""What several candidates share: records as `tf.train.Example`, and the input pipelines of TensorFlow 1.

These run on today's TensorFlow through `tf.compat.v1`. A step computes the complete batch for a model in the graph, and
fetches only its labels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.measure import BenchmarkTask

tf1 = tf.compat.v1
Batches = Iterable[tuple[np.ndarray, np.ndarray]]  # examples, and their labels int64


def feed(batches: Batches, dtype: tf.DType, shape: list[int]) -> Iterator[np.ndarray]:
    """Each numpy batch is fed to the step that uses it."""
    with tf.Graph().as_default(), tf1.Session() as session:
        x, y = tf1.placeholder(dtype, [None, *shape]), tf1.placeholder(tf.int64, [None])
        step = [tf.identity(y), tf.identity(x).op]
        for batch, labels in batches:
            yield session.run(step, {x: batch, y: labels})[0]


def feed_queue(
    task: BenchmarkTask, batches: Callable[[], Batches], dtype: tf.DType, shape: list[int], *, capacity: int, least: int
) -> Iterator[np.ndarray]:
    """A background thread feeds numpy batches to a RandomShuffleQueue, from which steps take theirs."""
    with tf.Graph().as_default(), tf1.Session() as session:
        x, y = tf1.placeholder(dtype, [None, *shape]), tf1.placeholder(tf.int64, [None])
        queue = tf.queue.RandomShuffleQueue(capacity, least, [dtype, tf.int64], [shape, []])
        enqueue, close = queue.enqueue_many([x, y]), queue.close()
        values, labels = queue.dequeue_up_to(task.batch_size)

        def run() -> None:
            for batch, batch_labels in batches():
                session.run(enqueue, {x: batch, y: batch_labels})
            session.run(close)

        threading.Thread(target=run, daemon=True).start()
        try:
            while True:
                yield session.run([labels, values.op])[0]
        except tf.errors.OutOfRangeError:
            return


def shuffled(task: BenchmarkTask, examples: list[Any], *, least: int, more: int) -> Any:
    """`shuffle_batch` of one example with four threads, or `shuffle_batch_join` of several with a thread each."""
    size = {"capacity": more + 3 * task.batch_size, "min_after_dequeue": least, "allow_smaller_final_batch": True}
    if len(examples) == 1:
        return tf1.train.shuffle_batch(examples[0], task.batch_size, num_threads=4, **size)
    return tf1.train.shuffle_batch_join(examples, task.batch_size, **size)


def run_queues(fetches: list[Any]) -> Iterator[np.ndarray]:
    """Runs the default graph's queues and steps until they are empty, and gives the first of what each step fetches."""
    with tf1.Session() as session:
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf1.train.start_queue_runners(session, coordinator)
        try:
            while not coordinator.should_stop():
                yield session.run(fetches)[0]
        except tf.errors.OutOfRangeError:
            pass
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)


def of_floats(values: list[float]) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def of_int(value: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def of_bytes(value: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def example(feature: dict[str, tf.train.Feature]) -> bytes:
    """A serialized `tf.train.Example`."""
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
