"""Damage to a manifest that its own numbers and names show: `open_dataset` refuses all of it before it reads."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import open_dataset
from schemas.errors import MillraceError
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.written_datasets import Written, write, write_images

Json = dict[str, Any]
ALONE = {"seed", "split_hash_version", "seconds"}  # nothing else in a manifest says how large they are


def _write_csv(folder: Path) -> Written:
    """Two inputs, three shards a split, rejects of two kinds."""
    (folder / "people.csv").write_text(people_csv(300) + "too,few\n" * 3)
    lines = people_csv(500).splitlines(keepends=True)
    (folder / "more.csv").write_text("".join([lines[0], *lines[301:]]) + "too,few\n" * 2)
    return write(folder, LEAN_SCHEMA, str(folder / "*.csv"))


KINDS: dict[str, Callable[[Path], Written]] = {"csv": _write_csv, "images": lambda folder: write_images(folder, "raw")}


@pytest.fixture(scope="module", params=KINDS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return KINDS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture
def manifest(written: Written) -> Iterator[Json]:
    """The manifest as it was written. What a test puts in its place is taken away again."""
    path = written.path / "manifest.json"
    whole = path.read_bytes()
    yield json.loads(whole)
    path.write_bytes(whole)


def is_refused(written: Written, manifest: Json) -> bool:
    (written.path / "manifest.json").write_text(json.dumps(manifest))
    try:
        open_dataset(str(written.path))
    except MillraceError as error:
        return str(written.path / "manifest.json") in str(error) or "missing" in str(error) or "bytes" in str(error)
    return False


def places(value: Any, wanted: type, place: tuple = ()) -> Iterator[tuple]:
    """Where values of a type stand in a manifest."""
    if type(value) is wanted and place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, wanted, (*place, key))


def at(value: Any, place: tuple) -> Any:
    for key in place:
        value = value[key]
    return value


def told_elsewhere(place: tuple) -> bool:
    """Whether another number of the manifest, or a file's size, says what this one must be."""
    return place[-1] not in ALONE and not (place[0] == "inputs" and place[-1] == "bytes")


def test_as_it_was_written(written: Written, manifest: Json) -> None:
    assert not is_refused(written, manifest)


@pytest.mark.parametrize("change", [lambda n: n + 1, lambda n: n - 1, lambda n: -n - 1, lambda n: n + 2**40])
def test_every_number_that_another_one_implies(written: Written, manifest: Json, change: Callable[[int], int]) -> None:
    numbers = [place for place in places(manifest, int) if told_elsewhere(place)]
    assert len(numbers) > 30
    passed = []
    for place in numbers:
        damaged = copy.deepcopy(manifest)
        at(damaged, place[:-1])[place[-1]] = change(at(manifest, place))
        passed += [place] if not is_refused(written, damaged) else []
    assert passed == []


@pytest.mark.parametrize("how", ["dropped", "doubled"])
def test_everything_that_is_dropped_or_doubled(written: Written, manifest: Json, how: str) -> None:
    """Except for files of the run that no reader needs; `verify` reports that they are not listed."""
    lists = [place for place in places(manifest, list) if place[0] in ("splits", "files", "inputs", "counts")]
    items = [(*place, i) for place in lists for i in range(len(at(manifest, place)))]
    items += [("splits", name) for name in manifest["splits"]] if how == "dropped" else []
    passed = []
    for *place, key in items:
        damaged = copy.deepcopy(manifest)
        within = at(damaged, tuple(place))
        if how == "dropped":
            del within[key]
        else:
            within.insert(key, within[key])
        if not is_refused(written, damaged):
            passed.append(at(manifest, (*place, key)).get("path"))
    needed = ("schema.yaml", "transform_fn/saved_model.pb")
    assert [path for path in passed if how == "doubled" or path is None or path.endswith(needed)] == []


def two_shards_change_places(manifest: Json) -> None:
    shards = manifest["splits"]["train"]["shards"]
    shards[0], shards[1] = shards[1], shards[0]


def a_shard_moves_to_another_split(manifest: Json) -> None:
    splits = manifest["splits"]
    splits["eval"]["shards"].append(splits["train"]["shards"].pop())


def splits_change_names(manifest: Json) -> None:
    splits = manifest["splits"]
    splits["train"], splits["eval"] = splits["eval"], splits["train"]


def a_split_gets_a_name_that_is_none(manifest: Json) -> None:
    manifest["splits"]["tests"] = manifest["splits"].pop("test")
    for count in manifest["counts"]:
        count["split"] = "tests" if count["split"] == "test" else count["split"]


def another_compression(manifest: Json) -> None:
    manifest["compression"] = "gzip"


def another_run(manifest: Json) -> None:
    manifest["run"] = "20200101T000000Z-0000"


def another_input(manifest: Json) -> None:
    manifest["inputs"][0]["path"] += "x"


def what_was_written_is_counted_as_rejected(manifest: Json) -> None:
    manifest["counts"][0]["outcome"] = "rejected" if manifest["counts"][0]["outcome"] == "written" else "written"


def a_reject_without_a_reason(manifest: Json) -> None:
    next(count for count in manifest["counts"] if count["outcome"] == "rejected")["reason"] = None


def rejects_without_a_file(manifest: Json) -> None:
    manifest["files"] = [file for file in manifest["files"] if "rejects-" not in file["path"]]


def rows_that_cancel_out(manifest: Json) -> None:
    """Negative rows in one shard and so many more in the next."""
    shards = manifest["splits"]["train"]["shards"]
    more = 2 * shards[0]["rows"]
    shards[0]["rows"], shards[1]["rows"] = shards[0]["rows"] - more, shards[1]["rows"] + more


def records_that_move_to_another_split(manifest: Json) -> None:
    one, other = [c for c in manifest["counts"] if c["outcome"] == "written"][:2]
    one["rows"], other["rows"] = one["rows"] + 1, other["rows"] - 1


@pytest.mark.parametrize(
    "damage",
    [
        two_shards_change_places,
        a_shard_moves_to_another_split,
        splits_change_names,
        a_split_gets_a_name_that_is_none,
        another_compression,
        another_run,
        another_input,
        what_was_written_is_counted_as_rejected,
        a_reject_without_a_reason,
        rejects_without_a_file,
        rows_that_cancel_out,
        records_that_move_to_another_split,
    ],
)
def test_what_does_not_fit_together(written: Written, manifest: Json, damage: Callable[[Json], None]) -> None:
    damage(manifest)
    assert is_refused(written, manifest)
