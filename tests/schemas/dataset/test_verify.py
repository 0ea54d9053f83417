"""Every fault that can befall a dataset, done to one that a job wrote, and what verification says of it."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import storage
from schemas.dataset import open_dataset
from schemas.dataset.checks import Tally
from schemas.dataset.verify import total_bytes, verify_dataset
from schemas.errors import MillraceError
from tests.support.dataset_faults import (
    FAULTS,
    Expected,
    add_files,
    flip,
    flip_a_bit_of_a_record,
    lose_a_shard,
    miscount_an_input,
    put_another_graph,
)
from tests.support.written_datasets import Written, write_csv, write_images

KINDS: dict[str, Callable[[Path], Written]] = {
    "csv": write_csv,
    "csv-gzip": lambda folder: write_csv(folder, compression="gzip"),
    "images": lambda folder: write_images(folder, "raw"),
    "images-gzip": lambda folder: write_images(folder, "jpeg", compression="gzip"),
}


@pytest.fixture(
    scope="module", params=[pytest.param(k, marks=[pytest.mark.slow] if k.endswith("gzip") else []) for k in KINDS]
)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A valid dataset. Not to be changed."""
    return KINDS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture
def damaged(written: Written, tmp_path: Path) -> Written:
    """A copy to do damage to."""
    shutil.copytree(written.path, tmp_path / "out")
    return Written(tmp_path / "out", written.manifest)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named_and_nothing_else_is(damaged: Written, fault: Callable[[Written], Expected]) -> None:
    expected = fault(damaged)
    found = damaged.problems()
    assert len(found) == len(expected), [str(problem) for problem in found]
    for problem, (path, kind, said) in zip(found, expected, strict=True):
        assert problem.path.endswith(path)
        assert re.fullmatch(kind, problem.kind)
        assert re.search(said, problem.message), problem.message


def test_a_valid_dataset_has_no_problems_and_every_byte_and_record_is_read(written: Written) -> None:
    tally = Tally()
    assert verify_dataset(str(written.path), tally=tally) == []
    assert tally.bytes == total_bytes(written.manifest)
    assert tally.rows == written.manifest.written
    assert tally.files == len(written.manifest.files) + sum(len(s.shards) for s in written.manifest.splits.values())


def test_all_faults_at_once_are_all_named(damaged: Written) -> None:
    lose_a_shard(damaged)
    flip_a_bit_of_a_record(damaged)
    add_files(damaged)
    put_another_graph(damaged)
    miscount_an_input(damaged)
    kinds = {problem.kind for problem in damaged.problems()}
    assert kinds == {"missing", "damaged", "extra", "graph", "account"}


def test_any_bit_that_flips_in_any_file_is_found(damaged: Written) -> None:
    draw = random.Random(1)
    files = [file.path for file in damaged.manifest.files if file.bytes]
    for path in [shard.path for split in damaged.manifest.splits for shard in damaged.shards(split)] + files:
        whole = (damaged.path / path).read_bytes()
        flip(damaged.path / path, draw.randrange(len(whole)))
        assert path in {problem.path for problem in damaged.problems()}
        (damaged.path / path).write_bytes(whole)
    assert damaged.problems() == []


def test_an_interrupted_verification_ends(written: Written) -> None:
    tally = Tally()

    def interrupt(**amounts: int) -> None:
        raise KeyboardInterrupt

    tally.add = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        verify_dataset(str(written.path), tally=tally)
    assert tally.stop.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("written", ["csv-gzip"], indirect=True)
def test_a_dataset_in_a_bucket_is_verified(written: Written, bucket: str) -> None:
    for path in written.path.rglob("*"):
        if path.is_file():
            storage.write_bytes(f"{bucket}/out/{path.relative_to(written.path)}", path.read_bytes())
    assert open_dataset(f"{bucket}/out").run == written.manifest.run
    assert verify_dataset(f"{bucket}/out") == []
    one, other = written.shards()[:2]
    storage.write_bytes(f"{bucket}/out/{one.path}", (written.path / other.path).read_bytes())
    storage.delete(f"{bucket}/out/{other.path}")
    assert [(p.path, p.kind) for p in verify_dataset(f"{bucket}/out")] == [
        (one.path, "swapped"),
        (other.path, "missing"),
    ]


def test_without_a_manifest_there_is_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(MillraceError, match=r"no manifest\.json"):
        verify_dataset(str(tmp_path))
