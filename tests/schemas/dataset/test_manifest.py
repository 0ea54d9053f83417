"""The manifest: its form, its sums, and the checksums of the files that it names."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas import storage
from schemas.dataset import open_dataset
from schemas.dataset.manifest import File, Manifest, read_manifest
from schemas.dataset.opening import check_graphs
from schemas.errors import MillraceError
from tests.support import small_jobs
from tests.support.dataset_faults import Written, write
from tests.support.people import LEAN_SCHEMA, people_csv


def manifest(**changes: Any) -> Manifest:
    """A small manifest of the run 'new', with `changes`."""
    files = (File(path="new/schema.yaml", bytes=1, sha256="0"),)
    return small_jobs.manifest("new").model_copy(update={"files": files, **changes})


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"run": "../other"}, "run"),
        ({"run": ".."}, "run"),
        ({"previous": ["/etc"]}, "previous.0"),
        ({"files": [{"path": "new/../../secret", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
        ({"files": [{"path": "/etc/passwd", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
        ({"files": [{"path": "new/a\nb", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
        ({"files": [{"path": "new\\..\\b", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
    ],
)
def test_a_manifest_that_leads_out_of_its_folder_is_refused(tmp_path, change, place):
    values = json.loads(manifest().to_json()) | change
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(MillraceError, match=f"{place}: .* leads outside the dataset directory"):
        read_manifest(str(tmp_path))


def test_another_format_version_is_refused_with_both_versions_and_a_remedy(tmp_path):
    storage.write_bytes(str(tmp_path / "manifest.json"), b'{"format_version": 2, "shards": []}')
    expected = "is of format version 2; this release reads version 1. Use the release that wrote it, or write the"
    with pytest.raises(MillraceError, match=rf"manifest\.json: {expected} dataset again\.$"):
        read_manifest(str(tmp_path))


Json = dict[str, Any]
ALONE = {"seed", "split_hash_version", "seconds"}  # nothing else in a manifest says how large they are


def _write_csv(folder: Path) -> Written:
    """Two inputs, three shards a split, rejects of two kinds."""
    (folder / "people.csv").write_text(people_csv(300) + "too,few\n" * 3)
    lines = people_csv(500).splitlines(keepends=True)
    (folder / "more.csv").write_text("".join([lines[0], *lines[301:]]) + "too,few\n" * 2)
    return write(folder, LEAN_SCHEMA, str(folder / "*.csv"))


@pytest.fixture(scope="module", params=["csv", "images"])
def written(request, tmp_path_factory: pytest.TempPathFactory, image_dataset: Written) -> Written:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "csv":
        return _write_csv(folder)
    return Written(Path(shutil.copytree(image_dataset.path, folder / "out")), image_dataset.manifest)


@pytest.fixture
def recorded(written: Written) -> Iterator[Json]:
    """The manifest as it was written. What a test puts in its place is taken away again."""
    path = written.path / "manifest.json"
    whole = path.read_bytes()
    yield json.loads(whole)
    path.write_bytes(whole)


def is_refused(written: Written, recorded: Json) -> bool:
    (written.path / "manifest.json").write_text(json.dumps(recorded))
    try:
        open_dataset(str(written.path))
    except MillraceError as error:
        return str(written.path / "manifest.json") in str(error) or "missing" in str(error) or "bytes" in str(error)
    return False


def places(value: Any, value_type: type, place: tuple = ()) -> Iterator[tuple]:
    """Where values of a type stand in a manifest."""
    if type(value) is value_type and place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, value_type, (*place, key))


def at(value: Any, place: tuple) -> Any:
    for key in place:
        value = value[key]
    return value


def told_elsewhere(place: tuple) -> bool:
    """Whether another number of the manifest, or a file's size, says what this one must be."""
    return place[-1] not in ALONE and not (place[0] == "inputs" and place[-1] == "bytes")


def test_as_it_was_written(written: Written, recorded: Json) -> None:
    assert not is_refused(written, recorded)


@pytest.mark.parametrize("change", [lambda n: n + 1, lambda n: n - 1, lambda n: -n - 1, lambda n: n + 2**40])
def test_every_number_that_another_one_implies(written: Written, recorded: Json, change: Callable[[int], int]) -> None:
    numbers = [place for place in places(recorded, int) if told_elsewhere(place)]
    assert len(numbers) > 30
    passed = []
    for place in numbers:
        damaged = copy.deepcopy(recorded)
        at(damaged, place[:-1])[place[-1]] = change(at(recorded, place))
        passed += [place] if not is_refused(written, damaged) else []
    assert passed == []


@pytest.mark.parametrize("how", ["dropped", "doubled"])
def test_everything_that_is_dropped_or_doubled(written: Written, recorded: Json, how: str) -> None:
    """Except for files of the run that no reader needs; `verify` reports that they are not listed."""
    lists = [place for place in places(recorded, list) if place[0] in ("splits", "files", "inputs", "counts")]
    items = [(*place, i) for place in lists for i in range(len(at(recorded, place)))]
    items += [("splits", name) for name in recorded["splits"]] if how == "dropped" else []
    passed = []
    for *place, key in items:
        damaged = copy.deepcopy(recorded)
        within = at(damaged, tuple(place))
        if how == "dropped":
            del within[key]
        else:
            within.insert(key, within[key])
        if not is_refused(written, damaged):
            passed.append(at(recorded, (*place, key)).get("path"))
    needed = ("schema.yaml", "transform_fn/saved_model.pb")
    assert [path for path in passed if how == "doubled" or path is None or path.endswith(needed)] == []


def changed(place: str, value: Any) -> Callable[[Json], None]:
    """A damage that puts a value, or what a function makes of the one that is there, at a place such as `a.0.b`."""

    def damage(recorded: Json) -> None:
        *within, key = (int(step) if step.isdigit() else step for step in place.split("."))
        holder = at(recorded, tuple(within))
        holder[key] = value(holder[key]) if callable(value) else value

    return damage


def a_shard_moves_to_another_split(recorded: Json) -> None:
    splits = recorded["splits"]
    splits["eval"]["shards"].append(splits["train"]["shards"].pop())


def a_split_gets_a_name_that_is_none(recorded: Json) -> None:
    recorded["splits"]["tests"] = recorded["splits"].pop("test")
    for count in recorded["counts"]:
        count["split"] = "tests" if count["split"] == "test" else count["split"]


def a_reject_without_a_reason(recorded: Json) -> None:
    next(count for count in recorded["counts"] if count["outcome"] == "rejected")["reason"] = None


def rows_that_cancel_out(recorded: Json) -> None:
    """Negative rows in one shard and so many more in the next."""
    shards = recorded["splits"]["train"]["shards"]
    more = 2 * shards[0]["rows"]
    shards[0]["rows"], shards[1]["rows"] = shards[0]["rows"] - more, shards[1]["rows"] + more


def records_that_move_to_another_split(recorded: Json) -> None:
    first, second = [c for c in recorded["counts"] if c["outcome"] == "written"][:2]
    first["rows"], second["rows"] = first["rows"] + 1, second["rows"] - 1


DAMAGES = {
    "two shards change places": changed("splits.train.shards", lambda shards: [shards[1], shards[0], *shards[2:]]),
    "splits change names": changed(
        "splits", lambda splits: splits | {"train": splits["eval"], "eval": splits["train"]}
    ),
    "another compression": changed("compression", "gzip"),
    "another run": changed("run", "20200101T000000Z-0000"),
    "another input": changed("inputs.0.path", lambda path: path + "x"),
    "what was written is counted as rejected": changed(
        "counts.0.outcome", lambda outcome: "rejected" if outcome == "written" else "written"
    ),
    "rejects without a file": changed(
        "files", lambda files: [file for file in files if "rejects-" not in file["path"]]
    ),
    "a shard moves to another split": a_shard_moves_to_another_split,
    "a split gets a name that is none": a_split_gets_a_name_that_is_none,
    "a reject without a reason": a_reject_without_a_reason,
    "rows that cancel out": rows_that_cancel_out,
    "records that move to another split": records_that_move_to_another_split,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_does_not_fit_together(written: Written, recorded: Json, damage: Callable[[Json], None]) -> None:
    damage(recorded)
    assert is_refused(written, recorded)


RUN = "20261121T074500Z-3f2a"
FILES = {
    "transform_fn/saved_model.pb": b"graph",
    "transform_fn/assets/words": b"a\nb\n",
    "ingest_fn/saved_model.pb": b"i",
}


@pytest.fixture
def graph_manifest(data_dir) -> Manifest:
    """Graphs in a dataset directory, local and gs://, and the manifest that names them."""
    for name, content in FILES.items():
        storage.write_bytes(f"{data_dir}/{RUN}/{name}", content)
    storage.write_bytes(f"{data_dir}/{RUN}/schema.yaml", b"no part of a graph")
    files = [File(path=f"{RUN}/{n}", bytes=len(c), sha256=hashlib.sha256(c).hexdigest()) for n, c in FILES.items()]
    return Manifest.model_construct(run=RUN, files=tuple(files))


def test_as_they_were_written(data_dir, graph_manifest):
    check_graphs(data_dir, graph_manifest)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(
            (name, content[:-1] + b"!", "was changed: its SHA-256 is .*It is not loaded")
            for name, content in FILES.items()
        ),
        *((name, None, r"missing, but manifest\.json names it") for name in FILES),
        # TensorFlow takes a `saved_model.cpb` before a `saved_model.pb`.
        ("transform_fn/saved_model.cpb", b"x", r"is not named by manifest\.json"),
        ("transformed_metadata/v1-json/schema.json", b"x", r"is not named by manifest\.json"),
    ],
)
def test_a_graph_whose_files_are_not_those_of_the_manifest(data_dir, graph_manifest, name, content, message):
    path = f"{data_dir}/{RUN}/{name}"
    storage.delete(path) if content is None else storage.write_bytes(path, content)
    with pytest.raises(MillraceError, match=f"{name}: {message}"):
        check_graphs(data_dir, graph_manifest)
