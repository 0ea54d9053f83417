"""A new analysis: the transform of all input, of which only what is new is read for it."""

from __future__ import annotations

import collections
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from beam_jobs.core import progress
from beam_jobs.core.options import AppendOptions
from beam_jobs.runs.append import run_append
from beam_jobs.transform import analyze
from schemas.csv import reader, stream
from schemas.dataset import Dataset
from schemas.errors import UsageError
from tests.support.appending import ROWS, Days, assert_holds, copied
from tests.support.built_once import built_once
from tests.support.written_records import records


@pytest.fixture(scope="session")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two days, the second one appended, which keeps its analyses. Not to be changed."""

    def build(folder: Path) -> None:
        days = Days(folder)
        days.write(days.day(0), keep_analysis=True)
        days.append(days.day(1))

    return built_once(tmp_path_factory, "two_days", build)


@pytest.fixture
def days(tmp_path: Path, two_days: Path) -> Days:
    """The same: a copy of its own for each test."""
    return copied(two_days, tmp_path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[tuple[str, str]]:
    """The bytes that are read of each file of rows, by phase and name."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    opened = stream.open_at

    class Counted:
        def __init__(self, path: str, **place: Any) -> None:
            self.file, self.name = opened(path, **place), Path(path).name

        def read(self, size: int) -> bytes:
            data = self.file.read(size)
            found[progress.counters.phase, self.name] += len(data)
            return data

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    monkeypatch.setattr(reader, "open_at", Counted)
    return found


def constants(dataset: Dataset) -> dict[str, list[list[float]]]:
    """The floating-point constants of the transform's graph, by name; functions have no order, so these are sorted."""
    model = SavedModel.FromString(Path(dataset.graphs_dir, "transform_fn", "saved_model.pb").read_bytes())
    found: dict[str, list[list[float]]] = collections.defaultdict(list)
    for meta in model.meta_graphs:
        graph = meta.graph_def
        for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
            value = tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" else np.empty(0)
            if value.dtype.kind == "f" and value.size:
                found[node.name].append(value.reshape(-1).tolist())
    return {name: sorted(values) for name, values in found.items()}


def vocabularies(dataset: Dataset) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(dataset.graphs_dir, "transform_fn", "assets").iterdir()}


def assert_as_if_written_at_once(days: Days, *paths: str) -> None:
    """The same records, constants and vocabularies as those of a job that reads all files for its analysis."""
    now, whole = days.dataset, days.write(*paths, output=str(days.path / "whole"))
    assert_holds(now, *paths)
    assert vocabularies(now) == vocabularies(whole)
    found, expected = constants(now), constants(whole)
    assert found.keys() == expected.keys()
    assert any(len(value) == 3 for values in expected.values() for value in values)  # the bounds of four buckets
    for name, values in expected.items():
        assert len(found[name]) == len(values)
        for value, other in zip(found[name], values, strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-6, err_msg=name)
    assert {s: sum(records(now, s).values()) for s in now.splits} == {s: whole.rows(s) for s in whole.splits}


def test_the_analysis_reads_nothing_of_known_runs_and_measures_the_same(days, read):
    """Also where the run that measures anew is the base of another one."""
    for day in (2, 3):
        read.clear()
        notes: list[str] = []
        new = days.day(day)
        options = AppendOptions(days.output, (new,), reanalyze=True, quiet=True)
        assert run_append(options, report=notes.extend).added == ROWS
        assert any(f"takes {day * ROWS} records of {day} runs as measured" in note for note in notes)
        analyzed = {name: size for (phase, name), size in read.items() if phase == "analyzing"}
        assert analyzed == {f"day{day}.csv": Path(new).stat().st_size}
        assert {name for phase, name in read if phase == "transforming"} >= {f"day{i}.csv" for i in range(day)}
        manifest = days.dataset.manifest
        assert (len(manifest.analyzed), manifest.appended, manifest.transform_from) == (day + 1, (), None)
        assert all(file.digest for file in manifest.inputs)
    assert_as_if_written_at_once(days, *(days.day(day) for day in range(4)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(("FORMAT_VERSION", 2), "version 1 and not 2", id="other versions", marks=pytest.mark.slow),
        pytest.param(("read_entries", None), "lacks a part that this release measures", id="a part is missing"),
    ],
)
def test_what_cannot_be_used_is_not_and_all_is_read(days, read, monkeypatch, change, why):
    name, value = change
    if name == "read_entries":
        complete = analyze.read_entries

        def without_one(*args: Any) -> dict[bytes, bytes]:
            return dict(sorted(complete(*args).items())[1:])

        monkeypatch.setattr(analyze, "read_entries", without_one)
    else:
        monkeypatch.setattr(analyze, name, value)
    notes: list[str] = []
    run_append(AppendOptions(days.output, (days.day(2),), reanalyze=True, quiet=True), report=notes.extend)
    assert any("reads all input after all" in note and why in note for note in notes)
    assert {name for phase, name in read if phase == "analyzing"} == {f"day{i}.csv" for i in range(3)}
    assert list(days.dataset.manifest.analyzed.values()) == [3 * ROWS]
    assert_as_if_written_at_once(days, *(days.day(day) for day in range(3)))


def test_without_kept_analyses_all_is_read_and_kept_from_then_on(tmp_path, read):
    days = Days(tmp_path)
    days.write(days.day(0))
    notes: list[str] = []
    options = AppendOptions(days.output, (days.day(0), days.day(1)), reanalyze=True, skip_known=True, quiet=True)
    run_append(options, report=notes.extend)
    assert any("not all runs of the dataset have kept theirs" in note for note in notes)
    assert {name for phase, name in read if phase == "analyzing"} == {"day0.csv", "day1.csv"}
    read.clear()
    run_append(AppendOptions(days.output, (days.day(1),), reanalyze=True, skip_known=True, quiet=True))
    assert not any(phase == "analyzing" for phase, _ in read)
    assert_holds(days.dataset, days.day(0), days.day(1))


def gone(days: Days) -> None:
    Path(days.path / "day1.csv").unlink()


def grown(days: Days) -> None:
    with Path(days.path / "day1.csv").open("a") as file:
        file.write("x\n")


def replayed(days: Days) -> None:
    from beam_jobs.core.options import ReplayOptions
    from beam_jobs.runs.replay import run_replay

    bad = Path(days.day(5))
    bad.write_text(bad.read_text() + "bad,old,1,1,a,a,a,no\n")
    days.append(str(bad))
    corrected = days.path / "corrected.jsonl"
    lines = [path.read_bytes() for path in Path(days.dataset.run_dir).glob("rejects-*.jsonl")]
    corrected.write_bytes(b"".join(lines).replace(b"old", b"33"))
    run_replay(ReplayOptions((str(corrected),), days.output, quiet=True))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (gone, r"reads all input again, and this is gone: .*day1\.csv"),
        (grown, r"day1\.csv is not what was read from it any more"),
        pytest.param(replayed, r"were added by --replay .* would be lost", marks=pytest.mark.slow),
    ],
)
def test_where_records_would_be_lost_it_is_refused(days, damage, message):
    damage(days)
    before = days.dataset.manifest
    with pytest.raises(UsageError, match=message):
        days.append(days.day(2), reanalyze=True)
    assert days.dataset.manifest == before


def test_sketches_are_stored_without_pickles():
    """What is stored is the sketch's own state; what tf.Transform is given is put together from it."""
    from tensorflow_transform.analyzers import QuantilesCombiner

    combiner = QuantilesCombiner(4, 0.01, np.float32, has_weights=False, output_shape=[1, 3], feature_shape=[])
    sketch = combiner.add_input(combiner.create_accumulator(), [np.arange(1000.0)])
    coder = combiner.accumulator_coder
    kind, state = analyze.to_stored(coder.encode_cache(sketch))
    assert kind == "quantiles"
    assert b"QuantilesSketch" not in state
    again = coder.decode_cache(analyze.from_stored(kind, state))
    np.testing.assert_array_equal(combiner.extract_output(again), combiner.extract_output(sketch))
    assert analyze.to_stored(b"[1.5, NaN]") == ("json", b"[1.5, NaN]")
    for wrong in (b"\x80\x03cos\nsystem\n(S'true'\ntR.", b"{"):
        with pytest.raises(ValueError, match=r"unknown kind|EOF while parsing"):
            analyze.to_stored(wrong)
    with pytest.raises(ValueError, match="kind 'pickle'"):
        analyze.from_stored("pickle", b"")


def test_kept_files_are_arrow_and_nothing_else(days):
    run = Path(days.dataset.run_dir)
    files = sorted((run / "analysis").iterdir())
    assert len(files) == 4  # two runs, each with its entries and its words
    for file in files:
        with pa.ipc.open_file(io.BytesIO(file.read_bytes())) as reader:
            table = reader.read_all()
        assert table.column_names in (["key", "kind", "value"], ["vocabulary", "word", "count"])
        assert not any(value.startswith(b"\x80") for value in table.to_pydict().get("value", []))
