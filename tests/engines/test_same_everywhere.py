"""One job on every engine: the same counts, records, statistics and rejects, for every kind of raw data."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset, open_dataset
from schemas.dataset.leakage import read_leakage
from schemas.dataset.statistics import read_statistics
from schemas.rejects import Reject
from schemas.spec.table import raw_columns
from schemas.storage import folders
from tests.support import prism as prisms
from tests.support.datasets import accounts_hold, contents, rejects_of
from tests.support.drawn_datasets import KINDS, Inputs
from trainer.spec.transform_graph import row_transform

pytestmark = pytest.mark.long


@dataclasses.dataclass(frozen=True)
class Written:
    """A dataset on local disk, and the folder or bucket that its input was in."""

    dataset: OpenDataset
    place: str


Run = Callable[[Path, Inputs, Path], Written]  # on the inputs in a folder, to an empty folder


def on_disk(folder: Path, inputs: Inputs, empty: Path, **changes: Any) -> Written:
    return Written(inputs.written(str(folder), str(empty / "out"), **changes), str(folder))


# By runner and store: the mark of the tests that need it.
ENGINES = {
    "local_disk": None,
    "local_bucket": pytest.mark.cloud,
    "prism_disk": pytest.mark.engines,
    "prism_bucket": pytest.mark.cloud,
    "dataflow_bucket": pytest.mark.cloud,
}


@pytest.fixture(params=[pytest.param(name, marks=[mark] if mark else []) for name, mark in ENGINES.items()])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Runs a job on an engine. What it reads from a bucket is copied there first, and what it writes is copied back."""
    runner, _, store = request.param.partition("_")
    ask = request.getfixturevalue
    if store == "disk":
        if runner == "local":
            yield on_disk
        else:
            beam_args = ask("prism").beam_args
            yield functools.partial(on_disk, runner="PortableRunner", beam_args=beam_args)
        return
    bucket = ask("running_cloud").new_bucket()
    with contextlib.ExitStack() as stack:
        changes: dict[str, Any] = {}
        if runner == "prism":  # of its own: its workers are to have the cloud's environment
            (tmp_path / "prism").mkdir()
            prism = stack.enter_context(prisms.running(tmp_path / "prism"))
            changes = {"runner": "PortableRunner", "beam_args": prism.beam_args}
        elif runner == "dataflow":
            beam_args = ask("dataflow").beam_args(bucket)
            changes = {"runner": "DataflowRunner", "beam_args": beam_args}

        def in_bucket(folder: Path, inputs: Inputs, empty: Path) -> Written:
            folders.copy(str(folder), f"{bucket}/in")
            inputs.written(f"{bucket}/in", f"{bucket}/out", **changes)
            folders.copy(f"{bucket}/out", str(empty / "out"))
            return Written(open_dataset(str(empty / "out")), f"{bucket}/in")

        yield in_bucket


@pytest.fixture(scope="module", params=list(KINDS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Inputs, Written]:
    """A kind of raw data, and its dataset by this machine's runner. Not to be changed."""
    folder, empty = tmp_path_factory.mktemp(f"{request.param}-in"), tmp_path_factory.mktemp(request.param)
    inputs = KINDS[request.param](folder)
    return inputs, on_disk(folder, inputs, empty)


def test_every_engine_writes_the_same_dataset(engine: Run, written: tuple[Inputs, Written], tmp_path: Path) -> None:
    inputs, expected = written
    result = engine(Path(expected.place), inputs, tmp_path)
    here, there = expected.dataset, result.dataset
    accounts_hold(there)
    manifest = there.manifest
    assert manifest.read == inputs.read
    assert manifest.rejected == len(rejects_of(there)) > 0
    assert collections.Counter(reject.reason for reject in rejects_of(there)) == inputs.rejected

    assert counts(there) == counts(here)
    assert contents(there) == contents(here)
    assert rejected(result) == rejected(expected)
    assert statistics(there) == statistics(here)
    assert vocabularies(there) == vocabularies(here)
    assert described(there) == described(here)
    assert leakage(result) == leakage(expected)
    assert [w.message for w in manifest.warnings] == [w.message for w in here.manifest.warnings]


def test_the_inputs_have_what_they_are_to_show(written: tuple[Inputs, Written]) -> None:
    inputs, expected = written
    dataset = expected.dataset
    assert len(vocabularies(dataset)) == inputs.vocabularies
    assert statistics(dataset)
    assert all(dataset.rows(split) for split in dataset.splits)


def described(dataset: OpenDataset) -> list[dict[str, Any]]:
    """The statistics of its features, but for what the order of values may change: quantiles where they are estimated.

    Rounding may change the last digits of mean and deviation.
    """
    features = read_statistics(dataset.path)["features"]
    for split_statistics in (split_statistics for item in features for split_statistics in item["splits"].values()):
        split_statistics |= {
            name: pytest.approx(split_statistics[name], rel=1e-9) for name in {"mean", "std"} & split_statistics.keys()
        }
        if "quantiles" in split_statistics and not split_statistics["quantiles"]["exact"]:
            del split_statistics["quantiles"], split_statistics["histogram"]
        if split_statistics.get("top_values_error"):
            del split_statistics["top_values"], split_statistics["top_values_error"]
    return features


def counts(dataset: OpenDataset) -> collections.Counter[tuple[object, ...]]:
    """The numbers of records by input, outcome and reason; inputs by their names alone."""
    return collections.Counter(
        {(name_of(c.input), c.outcome, c.split, c.stage, c.reason): c.rows for c in dataset.manifest.counts}
    )


def rejected(written: Written) -> list[str]:
    """The rejects as lines of their files, in any order; paths are relative to the place of the input."""

    def relative(reject: Reject) -> Reject:
        source, raw = reject.source.removeprefix(f"{written.place}/"), reject.raw
        return dataclasses.replace(reject, source=source, raw=raw.replace(f"{written.place}/".encode(), b""))

    return sorted(relative(reject).to_json() for reject in rejects_of(written.dataset))


def leakage(written: Written) -> str:
    """What leakage was found, with the same examples; paths are relative to the place of the input."""
    report = read_leakage(written.dataset.path, written.dataset.manifest)
    assert report is not None
    return json.dumps(report).replace(f"{written.place}/", "")


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def vocabularies(dataset: OpenDataset) -> dict[str, bytes]:
    """The files of vocabularies by name."""
    folder = Path(dataset.run_dir, "transform_fn", "assets")
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


ONES = {"float32": 1.0, "string": b"1", "uint8": np.uint8(1), "int64": np.int64(1)}


def statistics(dataset: OpenDataset) -> dict[str, list[float]]:
    """What the transform makes of a row of ones, which shows every mean, scale and boundary that it has measured."""
    if dataset.image_schema is None:
        columns = raw_columns(dataset.schema)
        outputs = row_transform(dataset)({c.name: tf.fill([1, *c.shape], ONES[c.dtype]) for c in columns})
    else:
        graph = tf.saved_model.load(str(Path(dataset.run_dir, "transform_fn"))).signatures["serving_default"]
        inputs = graph.structured_input_signature[1].items()
        outputs = graph(**{n: tf.fill([size or 1 for size in x.shape], ONES[x.dtype.name]) for n, x in inputs})
    return {
        name: (values.values if isinstance(values, tf.SparseTensor) else values).numpy().ravel().tolist()
        for name, values in outputs.items()
    }
