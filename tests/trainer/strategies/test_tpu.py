"""TPUEstimator's way on the CPU, what a TPU would get, and that XLA compiles it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support import replica_steps
from tests.support.tpu_training import BATCH, CORES, HOSTS, OF_TPU, UNREAD, Step, tpu_graph, unknown_to_xla
from tests.support.training import run
from trainer import task
from trainer.models import VARIANTS, Variant
from trainer.strategies import tpu

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(VARIANTS, "small", Variant(units=(1, 1, 1, 1), width=0.5))


def written_scalars(model_dir: Path) -> dict[int, dict[str, float]]:
    """What the host calls wrote, by step and tag."""
    found: dict[int, dict[str, float]] = {}
    for path in model_dir.glob("events.*.v2"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(event.step, {})[value.tag] = float(tf.make_ndarray(value.tensor))
    return found


def test_trains_evaluates_exports_and_resumes(late, tmp_path):
    assert run(late, tmp_path, "--tpu", "cpu") == 0
    assert run(late, tmp_path, "--tpu", "cpu", steps=60) == 0
    assert [e["global_step"] for e in json.loads((tmp_path / "evaluations.json").read_text())] == [20, 40, 60]
    assert [path.name for path in sorted((tmp_path / "export").iterdir())] == ["best", "final"]
    ((step, scalars),) = written_scalars(tmp_path).items()
    assert (step, list(scalars)) == (1, ["loss_on_tpu"])  # and then every 100 steps
    assert 0 < scalars["loss_on_tpu"] < 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--tpu", "lab"], "--tpu lab: TensorFlow 2.21.0 is built without TPUs"),
        (["--tpu", "cpu", "--strategy", "mirrored"], "a TPU replicates by itself; leave out --strategy"),
        (["--tpu", "cpu", "--model", "tests.support.own_models:keras_model"], "a Keras model's optimizer would train"),
    ],
)
def test_refuses(late, flags, told, tmp_path, capsys):
    assert task.main(["--data_dir", late.path, "--model_dir", str(tmp_path / "model"), *flags]) == 2
    assert told in capsys.readouterr().err


def test_this_tensorflow_has_no_kernels_for_tpus():
    assert not tpu.has_kernels()


def test_trains_as_without_a_tpu(people, tmp_path, capsys):
    """From the same weights, with the same batches, through TPUEstimator and its evaluation."""

    def losses(name: str, *flags: str, begin: str = "") -> list[float]:
        start, folder = str(tmp_path / begin) if begin else "", str(tmp_path / name)
        given = ["--model", "softmax", "--batch_size", "20", "--seed", "1", "--deterministic", *flags]
        assert replica_steps.main(["5", start, people.path, folder, *given]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        return [found["first"], found["loss"]]

    usual = losses("usual")
    assert usual[0] != usual[1]
    assert losses("tpu", "--tpu", "cpu", begin="usual") == pytest.approx(usual, rel=1e-5)


@pytest.mark.parametrize(
    ("model", "dataset", "hparams"),
    [
        ("softmax", "late", {}),
        ("dnn", "people", {"hidden_units": (8,), "batch_norm": True}),
        ("dnn", "wages", {}),
        ("linear", "people", {}),
        ("wide_deep", "people", {"dropout": 0.0, "indicator_limit": 2}),
        ("softmax", "colors", {}),
        ("squeezenext", "colors", {"variant": "small"}),
        ("face_pairs", "patterns", {"dropout": 0.0, "width": 4}),
    ],
)
def test_xla_compiles_the_step_and_it_is_the_usual_one(request, tmp_path, model, dataset, hparams):
    data = request.getfixturevalue(dataset)
    usual = Step(model, data, tmp_path / "usual", for_tpu=False, **hparams).make(2)
    step = Step(model, data, tmp_path / "tpu", for_tpu=True, **hparams)
    assert all(x.shape.is_fully_defined() for x in step.inputs)
    made = step.make(2, usual.before)
    # Batch norm over few examples multiplies by a hundred what threads that add up in another order make of the first.
    np.testing.assert_allclose(made.losses, usual.losses, rtol=1e-3)
    shapes = {name: value.shape for name, value in usual.before.items()}
    assert {name: value.shape for name, value in made.before.items()} == shapes  # so checkpoints fit either
    assert "<=" not in step.lowered()  # which stands for a size that is known only when the step runs


def test_xla_does_not_compile_the_step_of_a_cpu(late, tmp_path):
    with pytest.raises(ValueError, match=r"unsupported operations.* SparseReshape"):
        Step("linear", late, tmp_path, for_tpu=False).lowered()


@pytest.fixture(
    scope="module",
    params=[("dnn", "people", ["--hparams", "dropout=0.2"]), ("face_pairs", "patterns", [])],
    ids=["rows", "images"],
)
def built(request, tmp_path_factory):
    model, dataset, flags = request.param
    with pytest.MonkeyPatch.context() as monkeypatch:
        data = request.getfixturevalue(dataset)
        return tpu_graph(model, data, tmp_path_factory.mktemp("model"), monkeypatch, *flags)


class TestGraphOfATPU:
    """It is built, but no TPU has ever made it."""

    def test_holds_only_what_xla_knows(self, built):
        assert unknown_to_xla(built.operations()) <= OF_TPU | UNREAD

    def test_averages_the_gradient_of_each_variable_over_the_cores(self, built):
        sums = [node for node in built.step if node.op == "CrossReplicaSum"]
        assert len(sums) == len(built.trained) > 3

    def test_each_host_reads_its_part_and_each_core_its_share(self, built):
        assert built.parts == [{"num_workers": HOSTS, "worker": i} for i in range(HOSTS)]
        assert {shape[0] for shape in built.inputs()} == {BATCH // CORES}
        assert all(side > 0 for shape in built.inputs() for side in shape)

    def test_loops_and_tells_the_host(self, built):
        assert built.loop == 100
        assert built.operations()["OutfeedEnqueueTuple"] == 1
        assert {"SaveCheckpoints", "CheckInterrupts", "TPUInfeedOutfeedSessionHook"} <= set(built.hooks)
        assert "SummarySaverHook" not in built.hooks  # which would read images out of the step
