"""Records: serialized, framed, and written to fragments and shards, which TensorFlow reads back."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import resource
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.core.shuffle_plan import ShardOptions, ShufflePlan
from beam_jobs.records import examples, fragments
from beam_jobs.records.encode import Encoded
from beam_jobs.records.examples import LAYOUTS, UnencodedRows, framed, joined, lengths, record, sealed
from beam_jobs.records.fragments import FragmentTable, merge_buckets, write_fragment, write_shard
from beam_jobs.records.shards import WriteFragments
from schemas.errors import MillraceError
from schemas.storage.tfrecord import FOOTER, HEADER

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)


def read_back(frames: pa.LargeBinaryArray, folder: Path) -> list[bytes]:
    path = folder / "frames"
    path.write_bytes(joined(frames))
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


@in_one_folder
@given(records=st.lists(st.binary(max_size=40), max_size=20))
def test_records_of_any_lengths_are_read_back(records, tmp_path):
    frames = framed(records)
    assert read_back(frames, tmp_path) == records
    assert [record(frames, i) for i in range(len(frames))] == records
    assert lengths(frames).tolist() == [HEADER + len(r) + FOOTER for r in records]


@in_one_folder
@given(records=st.integers(0, 40).flatmap(lambda n: st.lists(st.binary(min_size=n + 1, max_size=n + 1), min_size=1)))
def test_records_of_one_length_are_framed_alike(records):
    room = b"?" * HEADER, b"?" * FOOTER
    frames = np.array([list(room[0] + r + room[1]) for r in records], np.uint8)
    assert sealed(frames).equals(framed(records))


def test_more_records_than_are_summed_at_once_are_all_sealed(tmp_path):
    records = [b"%05d" % i for i in range(1000)]
    frames = np.zeros((1000, HEADER + 5 + FOOTER), np.uint8)
    frames[:, HEADER:-FOOTER] = np.frombuffer(b"".join(records), np.uint8).reshape(1000, 5)
    assert read_back(sealed(frames), tmp_path) == records


FLOAT, INT = pa.float32(), pa.int64()


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def parsed(data: bytes) -> tf.train.Example:
    """The example, if protobuf would take as many bytes for it; the order of features is free."""
    example = tf.train.Example.FromString(data)
    assert len(data) == example.ByteSize()
    return example


def expected(rows: pa.RecordBatch, index: int) -> tf.train.Example:
    example = tf.train.Example()
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        feature, values = example.features.feature[name], array[index].as_py()
        kind = feature.int64_list if array.flatten().type == INT else feature.float_list
        kind.SetInParent()
        kind.value.extend(values)
    return example


@given(data=st.data(), rows=st.integers(1, 12))
def test_rows_are_serialised_as_protobuf_does_it(data, rows):
    columns = {}
    numbers = {
        FLOAT: st.floats(width=32, allow_nan=False),
        INT: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300),
    }
    for name in data.draw(st.lists(st.text(max_size=200), min_size=1, max_size=4, unique=True)):
        kind, make = data.draw(st.sampled_from([(k, m) for k in numbers for m in (pa.list_, pa.large_list)]))
        width = data.draw(st.integers(0, 40 if kind == FLOAT else 3))
        values = st.lists(numbers[kind], min_size=width, max_size=width)
        columns[name] = pa.array(data.draw(st.lists(values, min_size=rows, max_size=rows)), make(kind))
    encoded_rows = UnencodedRows.of(batch(**columns))
    if not any(array.value_lengths()[0].as_py() for array in columns.values()):
        assert encoded_rows is None
        return
    assert encoded_rows is not None
    made = encoded_rows.frames()  # twelve rows are of LAYOUTS combinations at most
    assert lengths(encoded_rows).tolist() == lengths(made).tolist()
    assert [parsed(record(made, i)) for i in range(rows)] == [expected(batch(**columns), i) for i in range(rows)]


def encoded(rows: pa.RecordBatch) -> pa.LargeBinaryArray:
    encoded_rows = UnencodedRows.of(rows)
    assert encoded_rows is not None
    return encoded_rows.frames()


def test_bits_of_numbers_that_are_none_are_kept():
    odd = np.array([np.nan, -0.0, np.inf, -np.inf, 1e-45], np.float32).reshape(5, 1)
    made = encoded(batch(x=pa.array(odd.tolist(), pa.list_(FLOAT))))
    values = [parsed(record(made, i)).features.feature["x"].float_list.value[0] for i in range(5)]
    np.testing.assert_array_equal(np.array(values, np.float32), odd[:, 0])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[b"a"], [b"b"]], pa.list_(pa.binary())),
        pa.array([[1.0], [2.0, 3.0]], pa.list_(FLOAT)),
        pa.array([[1.0], None], pa.list_(FLOAT)),
        pa.array([[1], [None]], pa.list_(INT)),
        pa.array([1.0, 2.0], FLOAT),
        pa.array([[[1.0]], [[2.0]]], pa.list_(pa.list_(FLOAT))),
    ],
    ids=["strings", "ragged", "absent", "null", "no list", "nested"],
)
def test_what_is_not_of_one_length_is_left_to_the_encoder_for_all(column):
    assert UnencodedRows.of(batch(ok=pa.array([[1], [2]], pa.list_(INT)), other=column)) is None


@pytest.mark.parametrize("combinations", [LAYOUTS, LAYOUTS + 1, 81])
@pytest.mark.parametrize("width", [2, 7])  # as many sizes as are compared, and as are hashed
def test_rows_of_any_number_of_lengths_are_serialised_alike(combinations, width):
    powers = [
        [2 ** (7 * (i % 9)), 2 ** (7 * (i // 9))] + [2 ** (7 * (i % 2))] * (width - 2) for i in range(combinations)
    ]
    rows = batch(a=pa.array([[1.5]] * combinations, pa.list_(FLOAT)), x=pa.array(powers, pa.list_(INT)))
    made, encoded_rows = encoded(rows), UnencodedRows.of(rows)
    assert [parsed(record(made, i)) for i in range(combinations)] == [expected(rows, i) for i in range(combinations)]
    assert lengths(encoded_rows).tolist() == lengths(made).tolist()


def test_a_slice_and_an_empty_batch():
    rows = batch(x=pa.array([[i, 1000] for i in range(10)], pa.list_(INT)))
    made = encoded(rows.slice(3, 2))
    assert [parsed(record(made, i)) for i in range(2)] == [expected(rows, 3), expected(rows, 4)]
    assert UnencodedRows.of(rows.slice(0, 0)) is None


def places_of(file: int, rows: int) -> np.ndarray:
    return np.stack([np.full(rows, file), np.arange(rows)], axis=1)


def encoded_batch(file: int, rows: int, *, placed: bool = True) -> Encoded:
    splits = np.array([0, 0, 0, 1] * (rows // 4 + 1), np.int8)[:rows]
    frames = framed([f"{file}-{i}".encode() * (1 + i % 3) for i in range(rows)])
    records = examples.with_places(frames, places_of(file, rows)) if placed else frames
    return Encoded(records, splits, file, 100 * file)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_record_comes_out_once_and_in_its_split(tmp_path, compression):
    plan = ShufflePlan((5, 2, 0), seed=1)
    batches = [encoded_batch(file, rows) for file, rows in enumerate([1000, 1, 0, 333])]
    table = FragmentTable.of([write_fragment(b, plan, str(tmp_path)) for b in batches])
    for split, buckets in ((0, range(5)), (1, range(5, 7))):
        shard = write_shard(
            str(tmp_path / f"shard{split}"),
            merge_buckets(table.of_buckets(buckets), seed=1),
            split="train",
            index=0,
            compression=compression,
        )
        kind = {"none": "", "gzip": "GZIP"}[compression]
        read = [r.numpy() for r in tf.data.TFRecordDataset(shard.path, kind)]
        expected = [examples.record(b.records, i) for b in batches for i in np.flatnonzero(b.splits == split).tolist()]
        assert collections.Counter(read) == collections.Counter(expected)
        assert len(read) == shard.rows
        data = (tmp_path / f"shard{split}").read_bytes()
        assert (len(data), f"{google_crc32c.value(data):08x}") == (shard.bytes, shard.crc32c)
        beside = (tmp_path / f"places-shard{split}.arrow").read_bytes()
        assert (len(beside), hashlib.sha256(beside).hexdigest()) == (shard.places_bytes, shard.places_sha256)
        places = pa.ipc.open_file(beside).read_all()
        made = zip(places["file"].to_pylist(), places["offset"].to_pylist(), strict=True)
        assert [f"{file}-{i}".encode() * (1 + i % 3) for file, i in made] == read


def test_records_without_places_have_no_file_beside_them(tmp_path):
    plan = ShufflePlan((1, 1, 0), seed=1)
    table = FragmentTable.of([write_fragment(encoded_batch(0, 40, placed=False), plan, str(tmp_path))])
    shard = write_shard(
        str(tmp_path / "shard"), merge_buckets(table, seed=1), split="train", index=0, compression="none"
    )
    assert (shard.rows, shard.places_bytes) == (40, 0)
    assert not list(tmp_path.glob("places-*"))


def merged(table: FragmentTable) -> bytes:
    return b"".join(bytes(joined(examples.frames(records))) for records in merge_buckets(table, seed=1))


def numbers(file: int, rows: int, *, width: int = 1) -> Encoded:
    values = np.random.default_rng(file).integers(0, 2**20, (rows, width))
    features = batch(
        id=pa.array(values.tolist(), pa.list_(INT)), size=pa.array((values[:, :1] / 2).tolist(), pa.list_(FLOAT))
    )
    encoded_rows = UnencodedRows.of(features, places_of(file, rows))
    assert encoded_rows is not None
    return Encoded(encoded_rows, np.zeros(rows, np.int8), file, 100 * file)


@pytest.mark.parametrize(
    "batches",
    [
        [numbers(0, 700), numbers(1, 1), numbers(2, 300)],
        [numbers(0, 700), numbers(1, 200, width=2)],
        [numbers(0, 300), encoded_batch(1, 100), numbers(2, 300)],
    ],
    ids=["alike", "of several widths", "beside frames"],
)
def test_rows_that_are_encoded_late_make_the_shards_of_those_that_are_encoded_early(tmp_path, batches):
    plan = ShufflePlan((5, 2, 0), seed=1)
    plans = plan, dataclasses.replace(plan, small=True)
    tables = [FragmentTable.of([write_fragment(b, variant, str(tmp_path)) for b in batches]) for variant in plans]
    assert set(tables[1].fields) == {None}
    assert tables[0].bucket_sizes() == tables[1].bucket_sizes()
    shards = [merged(table) for table in tables]
    assert shards[0] == shards[1]
    assert len(shards[0]) == sum(tables[0].bucket_sizes())


def test_a_bucket_that_is_merged_in_parts_is_permuted_as_one(tmp_path, monkeypatch):
    plan = ShufflePlan((3, 1, 0), seed=1)
    table = FragmentTable.of([write_fragment(numbers(0, 500), plan, str(tmp_path))])
    whole = merged(table.of_buckets(range(3)))
    monkeypatch.setattr(fragments, "ROWS_AT_ONCE", 7)
    assert merged(table.of_buckets(range(3))) == whole


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What is beyond cannot be written, as on a full disk: the system writes a part, and refuses the next write."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_shard_that_the_disk_has_no_room_for_is_no_shorter_shard(tmp_path):
    path = str(tmp_path / "shard")
    chunks = iter([framed([bytes(1000)])] * 4)
    with files_of_at_most(2500), pytest.raises(MillraceError, match=f"{path}: File too large"):
        write_shard(path, chunks, split="train", index=0, compression="none")


OF_BOTH_KINDS = pytest.mark.parametrize("made", [encoded_batch(0, 100), numbers(0, 130)], ids=["frames", "rows"])


@OF_BOTH_KINDS
@pytest.mark.parametrize("room", [0, 300, 1500])  # 300: for the lengths alone
def test_a_fragment_that_does_not_fit_on_the_disk_fails_at_once(tmp_path, room, made):
    with files_of_at_most(room), pytest.raises(MillraceError, match=r"fragment-\w+(\.index)?: File too large"):
        write_fragment(made, ShufflePlan((1, 1, 0), seed=1), str(tmp_path))


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[WriteFragments]:
    plan = ShufflePlan((1, 1, 0), seed=1)
    step = WriteFragments(ShardOptions(plan, (None,) * 3, 1e6, "none", str(folder), fragments=str(folder)))
    step.setup()
    step.start_bundle()
    yield step
    step.teardown()


def test_each_fragment_of_a_bundle_is_there_when_it_is_named(tmp_path):
    with writing(tmp_path) as step:
        for batches in (4, 0, 1):  # bundles
            step.start_bundle()
            bundle_fragments = [
                fragment for file in range(batches) for fragment in step.process(encoded_batch(file, 100))
            ]
            assert len(bundle_fragments) == max(0, batches - 1)
            assert all(Path(f.path).stat().st_size == f.sizes.sum() for f in bundle_fragments)
            bundle_fragments += [windowed.value for windowed in step.finish_bundle()]
            assert [fragment.place for fragment in bundle_fragments] == [(file, 100 * file) for file in range(batches)]
    assert len(list(tmp_path.iterdir())) == 2 * 5


def test_a_fragment_that_could_not_be_written_fails_its_bundle(tmp_path):
    with writing(tmp_path / "gone") as step:
        assert not list(step.process(encoded_batch(0, 100)))
        with pytest.raises(MillraceError, match=r"fragment-\w+"):
            list(step.finish_bundle())


@OF_BOTH_KINDS
def test_a_cut_fragment_is_noticed(tmp_path, made):
    fragment = write_fragment(made, ShufflePlan((1, 1, 0), seed=1), str(tmp_path))
    with open(fragment.path, "r+b") as file:
        file.truncate(500)
    with pytest.raises(OSError, match="the fragment is truncated"):
        list(merge_buckets(FragmentTable.of([fragment]), seed=1))
