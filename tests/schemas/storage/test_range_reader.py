"""A file that is read by requests for ranges: the same bytes as of a local file, in few requests, several at once."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.storage import store
from schemas.storage.store import AHEAD, PEEK, PIECE, RangeReader

DATA = np.random.default_rng(1).bytes(30 << 20)


class Requests:
    """The requests for ranges of DATA that a reader makes."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def fetch(self, first: int, stop: int) -> bytes:
        assert 0 <= first < stop
        with self._lock:
            self.made.append((first, stop))
        return DATA[first:stop]

    @property
    def bytes(self) -> int:
        return sum(stop - first for first, stop in self.made)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@given(
    size=st.integers(0, 300),
    steps=st.lists(st.tuples(st.sampled_from(["read", "set", "move", "end"]), st.integers(-50, 150)), max_size=12),
)
def test_it_reads_what_a_file_in_memory_reads(pool, size: int, steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PIECE", 16), ("AHEAD", 40), ("PEEK", 8)):
            patch.setattr(store, name, value)
        file, expected = RangeReader(Requests().fetch, size, pool), io.BytesIO(DATA[:size])
        for step, amount in steps:
            if step == "read":
                assert file.read(amount) == expected.read(amount)
            else:
                whence = ("set", "move", "end").index(step)
                target = amount + (0, expected.tell(), size)[whence]
                if target >= 0:
                    assert file.seek(amount, whence) == expected.seek(target)
            assert file.tell() == expected.tell()
        file.close()


def test_a_range_and_the_rest_of_its_last_record_are_one_round_of_requests(pool) -> None:
    requests = Requests()
    with RangeReader(requests.fetch, len(DATA), pool) as file:
        file.seek(5 << 20)
        assert file.read(8 << 20) == DATA[5 << 20 : 13 << 20]
        assert file.read(1 << 16) == DATA[13 << 20 : (13 << 20) + (1 << 16)]
    assert len(requests.made) == (8 << 20) // PIECE + 1
    assert requests.bytes == (8 << 20) + PEEK


def test_a_reader_that_goes_on_has_bytes_on_their_way_and_a_bounded_number(pool) -> None:
    requests, read = Requests(), 0
    with RangeReader(requests.fetch, len(DATA), pool) as file:
        while data := file.read(1 << 20):
            assert data == DATA[read : read + len(data)]
            read += len(data)
            assert requests.bytes <= read + AHEAD
    assert read == len(DATA) == requests.bytes  # each byte once


def test_a_look_at_the_beginning_requests_little(pool) -> None:
    requests = Requests()
    with RangeReader(requests.fetch, len(DATA), pool) as file:
        assert file.read(2) == DATA[:2]
    assert requests.made == [(0, 2 + PEEK)]


def test_what_a_request_raises_is_raised_by_the_read(pool) -> None:
    def fails(first: int, stop: int) -> bytes:
        raise OSError("cut")

    with RangeReader(fails, 100, pool) as file, pytest.raises(OSError, match="cut"):
        file.read(10)
    with pytest.raises(ValueError, match="closed"):
        file.read(1)
