"""A tf.data service on loopback, a dispatcher and two workers: they prepare the batches of a training."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator

import pytest
import tensorflow as tf

from schemas.errors import MillraceError, UsageError
from tests.support.training import run
from trainer.data.input_fn import check_reachable, input_fn
from trainer.data.input_options import input_options
from trainer.estimator import tf_estimator
from trainer.spec.options import TrainOptions

TRAIN, EVAL = tf_estimator.ModeKeys.TRAIN, tf_estimator.ModeKeys.EVAL


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The dispatcher's address."""
    servers = tf.data.experimental.service
    dispatcher = servers.DispatchServer(servers.DispatcherConfig(port=0))
    address = dispatcher.target.removeprefix("grpc://")
    workers = [servers.WorkerServer(servers.WorkerConfig(dispatcher_address=address)) for _ in range(2)]
    yield dispatcher.target
    del workers, dispatcher


def ages(dataset, mode: str, address: str | None, *, epochs: int) -> collections.Counter:
    asked = TrainOptions(data_dir=dataset.path, model_dir="", batch_size=16, data_service=address)
    options = dataclasses.replace(input_options(dataset, asked, split="train", mode=mode), num_epochs=epochs)
    read = input_fn(dataset, "train", mode=mode, options=options)
    return collections.Counter(float(age) for features, _ in read for age in features["age"])


@pytest.mark.engines
@pytest.mark.parametrize("data", ["wages", "people"])  # parsed before they are shuffled, and after
def test_every_record_is_read_once_an_epoch(request, service, data):
    dataset = request.getfixturevalue(data)
    once = ages(dataset, EVAL, None, epochs=1)
    found = ages(dataset, TRAIN, service, epochs=4)
    assert found == collections.Counter({age: 4 * count for age, count in once.items()})


@pytest.mark.engines
def test_images(stripes, service):
    asked = TrainOptions(data_dir=stripes.path, model_dir="", batch_size=8, data_service=service)
    options = dataclasses.replace(input_options(stripes, asked, split="train", mode=TRAIN), num_epochs=2)
    labels = [int(x) for _, y in input_fn(stripes, "train", mode=TRAIN, options=options) for x in y]
    assert len(labels) == 2 * stripes.rows("train")


@pytest.mark.engines
def test_a_training(late, service, tmp_path, capsys):
    assert run(late, tmp_path / "model", "--data_service", service, steps=20) == 0
    assert '"global_step": 20' in capsys.readouterr().out


class TestRefuses:
    def test_where_nobody_answers(self):
        with pytest.raises(MillraceError, match=r"--data_service grpc://127\.0\.0\.1:1: no dispatcher answers there"):
            check_reachable("grpc://127.0.0.1:1")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"data_service": "localhost:5000"}, "expected grpc://HOST:PORT, a dispatcher's address"),
            ({"data_service": "grpc://localhost"}, "expected grpc://HOST:PORT"),
            ({"data_service": "grpc://h:1", "deterministic": True}, "--data_service and --deterministic: "),
            ({"data_service": "grpc://h:1", "shuffle_buffer": 0}, "--data_service and --shuffle_buffer 0: "),
        ],
    )
    def test_options(self, options, message):
        with pytest.raises(UsageError, match=message):
            TrainOptions(data_dir="d", model_dir="m", **options)
