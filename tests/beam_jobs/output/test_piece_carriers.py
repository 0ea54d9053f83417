"""Pieces of shards come out of a runner's shuffle as they went in, by value or by the place in a file."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest

from beam_jobs.records import examples
from beam_jobs.records.shuffle import ByFile, ByValue, Piece, pieces_by_bucket
from schemas.errors import MillraceError
from schemas.storage.tfrecord import read_frames

RECORDS = [bytes([i]) * (i % 9) for i in range(100)]
BUCKETS = np.arange(100) % 3


def pieces() -> list[tuple[int, Piece]]:
    return list(pieces_by_bucket(examples.framed(RECORDS), BUCKETS))


def records_in(piece: Piece) -> list[bytes]:
    return [record for frames in read_frames([piece.data]) for record in frames.records]


@pytest.mark.parametrize("by", ["value", "file"])
def test_pieces_come_out_as_they_went_in(tmp_path: Path, by: str) -> None:
    carrier = ByValue() if by == "value" else ByFile(str(tmp_path))
    sent = list(carrier.send(iter(pieces())))
    assert [bucket for bucket, _ in sent] == [0, 1, 2]
    received = list(carrier.receive(item for _, item in reversed(sent)))
    for (bucket, piece), found in zip(reversed(pieces()), received, strict=True):
        assert records_in(found) == [record for i, record in enumerate(RECORDS) if i % 3 == bucket]
        assert found.lengths.tolist() == piece.lengths.tolist()
    assert records_in(next(carrier.receive([sent[0][1]]))) == RECORDS[::3]  # again, as a repeated bundle does


def test_what_is_sent_by_file_is_as_small_for_many_records_as_for_few(tmp_path: Path) -> None:
    coder = beam.coders.registry.get_coder(ByFile.sent)

    def sent(records: int) -> int:
        frames = examples.framed([bytes(100)] * records)
        (item,) = ByFile(str(tmp_path)).send(pieces_by_bucket(frames, np.zeros(records, np.int64)))
        return len(coder.encode(item))

    assert sent(20_000) < sent(1) + 10  # digits


def test_a_repeated_bundle_writes_another_file(tmp_path: Path) -> None:
    carrier = ByFile(str(tmp_path))
    paths = {path for _ in range(2) for _, (path, *_) in carrier.send(iter(pieces()))}
    assert paths == {str(path) for path in tmp_path.iterdir()}
    assert len(paths) == 2


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    carrier = ByFile(str(tmp_path))
    *_, (_, last) = carrier.send(iter(pieces()))
    path = Path(last[0])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MillraceError, match=rf"{path.name}: expected .* bytes .*: the file is truncated"):
        list(carrier.receive([last]))
