"""Which image files are kept for parity: while they are read, and when the job commits."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.core.parity import BUDGET, RECORDS, FileKeeper, ParityFiles, StagedCopy, choose
from schemas import storage
from schemas.profile.duplicates import place_hash

MB = 1 << 20


def record(rank: int, size: int) -> ParityFiles:
    return ParityFiles(rank, StagedCopy(f"file-{rank}", size), "cat", f"stored-{rank}")


@pytest.mark.parametrize(
    ("records", "chosen"),
    [
        pytest.param([], [], id="none"),
        pytest.param([record(2, 5), record(1, 5)], [1, 2], id="all that the budget holds, by rank"),
        pytest.param([record(1, 20), record(2, 9), record(3, 2)], [1, 2], id="up to the budget"),
        pytest.param([record(1, 90), record(2, 80)], [1], id="the first, however large"),
    ],
)
def test_records_are_chosen_by_rank_and_budget(records: list[ParityFiles], chosen: list[int]) -> None:
    assert [r.rank for r in choose(records, budget=30)] == chosen


def kept(folder: Path, sizes: list[int]) -> list[StagedCopy]:
    """What is kept of files of these sizes, whose bytes are views of one buffer."""
    data = memoryview(bytes(max(sizes)))
    keeper = FileKeeper(str(folder), len(sizes))
    ranked = zip(place_hash(0, np.arange(len(sizes))).tolist(), sizes, strict=True)
    return [file for rank, size in ranked if (file := keeper.keep(rank, bytes(data[:size])))]


def test_all_of_a_few_small_files_are_kept(tmp_path: Path) -> None:
    files = kept(tmp_path, [10] * RECORDS)
    assert len(files) == RECORDS
    assert all(Path(file.path).stat().st_size == file.size == 10 for file in files)


def test_of_many_files_about_as_many_as_are_aimed_at_or_the_budget_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "write_bytes", lambda path, data: None)
    assert RECORDS * 0.6 < len(kept(tmp_path, [10] * 20_000)) < RECORDS * 1.5
    draw = random.Random(1)
    assert sum(file.size for file in kept(tmp_path, [draw.randint(MB, 2 * MB) for _ in range(2_000)])) > BUDGET
    assert sum(file.size for file in kept(tmp_path, [draw.randint(MB, 2 * MB) for _ in range(2_000)])) < 2.2 * BUDGET
    assert kept(tmp_path, [BUDGET] * 3)
