"""Which image files are kept for parity: while they are read, and when the job commits."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.core.parity import BUDGET, LIMIT, RECORDS, FileKeeper, KeptFile, ParityFiles, choose
from schemas import storage
from schemas.profile.duplicates import place_hash

MB = 1 << 20


def record(rank: int, size: int, *branches: str) -> ParityFiles:
    return ParityFiles(rank, KeptFile(f"file-{rank}", size, branches or ("png",)), "cat", f"stored-{rank}")


def ranks(records: list[ParityFiles]) -> list[int]:
    return [r.rank for r in records]


class TestChoose:
    @pytest.mark.parametrize(
        ("records", "chosen"),
        [
            pytest.param([], [], id="none"),
            pytest.param([record(2, 5), record(1, 5)], [1, 2], id="all that the budget holds, by rank"),
            pytest.param([record(1, 20), record(2, 9), record(3, 2)], [1, 2], id="up to the budget"),
            pytest.param([record(1, 30), record(2, 5), record(3, 5, "cmyk")], [1, 3], id="a branch beyond the budget"),
            pytest.param([record(1, 30), record(2, 31, "cmyk")], [1], id="no branch beyond the limit"),
            pytest.param([record(1, 31), record(2, 9)], [1], id="the first is larger than the budget: its branch"),
            pytest.param([record(1, 90), record(2, 80), record(3, 95)], [2], id="too large all: the smallest"),
            pytest.param(
                [record(1, 30, "a"), record(2, 5, "a", "b"), record(3, 5, "b"), record(4, 5, "c")],
                [1, 2, 4],
                id="a file of several branches",
            ),
        ],
    )
    def test_by_budget_and_branch(self, records, chosen):
        assert ranks(choose(records, budget=30, limit=60)) == chosen

    @given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abcdef")), unique_by=lambda r: r), st.randoms())
    def test_never_more_than_the_limit_and_whatever_the_order(self, sizes, shuffle):
        records = [record(i, size, branch) for i, (size, branch) in enumerate(sizes)]
        chosen = choose(records, budget=40, limit=80)
        assert sum(r.raw.size for r in chosen) <= 80
        shuffle.shuffle(records)
        assert choose(records, budget=40, limit=80) == chosen
        missing = {r.raw.branches for r in records} - {r.raw.branches for r in chosen}
        assert all(sum(r.raw.size for r in chosen) + r.raw.size > 80 for r in records if r.raw.branches in missing)


def test_survives_a_round_trip_through_json():
    one = record(2**64 - 1, 5, "jpeg 1/8", "cmyk")
    assert ParityFiles.from_json(json.loads(json.dumps(dataclasses.asdict(one)))) == one


class TestFileKeeper:
    def kept(self, folder: Path, sizes: list[int], *, branch: str = "png") -> list[KeptFile]:
        """What is kept of files of these sizes, none of which is held: their bytes are views of one buffer."""
        data = memoryview(bytes(max(sizes)))
        keeper = FileKeeper(str(folder), len(sizes))
        ranked = zip(place_hash(0, np.arange(len(sizes))).tolist(), sizes, strict=True)
        return [file for rank, size in ranked if (file := keeper.keep(rank, bytes(data[:size]), (branch,)))]

    def test_all_of_a_few_small_files(self, tmp_path):
        files = self.kept(tmp_path, [10] * RECORDS)
        assert len(files) == RECORDS
        assert all(Path(file.path).stat().st_size == file.size == 10 for file in files)

    def test_about_as_many_as_wanted_of_many_small_ones(self, tmp_path, monkeypatch):
        monkeypatch.setattr(storage, "write_bytes", lambda path, data: None)
        assert RECORDS * 0.6 < len(self.kept(tmp_path, [10] * 20_000)) < RECORDS * 1.5

    @pytest.mark.parametrize("spread", [1, 50])
    def test_about_the_budget_of_large_ones(self, tmp_path, monkeypatch, spread):
        monkeypatch.setattr(storage, "write_bytes", lambda path, data: None)
        draw = random.Random(1)
        sizes = [draw.randint(2 * MB // spread, 2 * MB) for _ in range(2_000)]
        kept = sum(file.size for file in self.kept(tmp_path, sizes))
        assert BUDGET < kept < 2.2 * BUDGET

    def test_one_of_each_branch_however_large(self, tmp_path, monkeypatch):
        monkeypatch.setattr(storage, "write_bytes", lambda path, data: None)
        keeper = FileKeeper("staging", 10**9)
        assert keeper.keep(2**63, b"x" * LIMIT, ("gray",)) is not None
        assert keeper.keep(2**63, b"x" * LIMIT, ("gray",)) is None
        assert keeper.keep(2**62, b"x" * LIMIT, ("gray",)) is not None  # of a smaller hash: this one will be chosen
        assert keeper.keep(2**61, b"x" * (LIMIT + 1), ("cmyk",)) is None
        assert keeper.keep(2**63, b"x", ("gray", "cmyk")) is not None
