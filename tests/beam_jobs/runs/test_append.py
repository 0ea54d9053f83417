"""Appends: new files become records of the dataset, once, as they would have been if they had been there before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.preprocess import main
from schemas.dataset import layout, open_dataset
from schemas.dataset.prune import prune
from schemas.dataset.statistics import read_statistics
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders
from tests.support.appending import HEADER, ROWS, Days, assert_holds, copied, ids, row
from tests.support.built_once import built_once
from tests.support.dataset_faults import assert_every_damage_is_found
from tests.support.written_records import records


@pytest.fixture(scope="session")
def first_day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the first day, written once. Not to be changed."""

    def build(folder: Path) -> None:
        days = Days(folder)
        days.write(days.day(0))

    return built_once(tmp_path_factory, "first_day", build)


@pytest.fixture
def days(tmp_path: Path, first_day: Path) -> Days:
    """The first day, and a dataset of it: a copy of its own for each test."""
    return copied(first_day, tmp_path)


def test_appended_days_are_what_they_would_have_been_with_the_transform_of_the_first(days):
    """Two appends, of one file and of two; the other dataset applies the same transform to all four at once."""
    first = days.dataset
    paths = [days.day(0), *(days.day(day) for day in (1, 2, 3))]
    one = days.append(paths[1])
    assert (one.added, one.skipped) == (ROWS, ())
    assert_holds(days.dataset, *paths[:2])
    assert (Path(first.run_dir) / layout.REPORT).exists()  # a reader may have the first dataset open
    assert_every_damage_is_found(Path(days.output), days.path)
    two = days.append(*paths[2:])
    assert two.added == 2 * ROWS
    now = days.dataset
    assert_holds(now, *paths)
    assert {path.suffix for path in Path(first.run_dir).rglob("*")} == {".tfrecord"}  # nobody reads the rest any more
    assert_every_damage_is_found(Path(days.output), days.path)
    assert now.manifest.appended == (one.manifest.run, two.manifest.run)
    assert now.manifest.transform_from == first.run
    old, shards = first.shards("train"), now.shards("train")
    assert (shards[: len(old)], len(shards)) == (old, len(old) + 2)  # one for each append, which are small
    whole = days.write(*paths, output=str(days.path / "whole"), transform_from=days.output)
    assert ids(now) == ids(whole)
    assert {split: records(now, split) for split in now.splits} == {s: records(whole, s) for s in whole.splits}
    told, expected = (read_statistics(dataset.path) for dataset in (now, whole))
    assert [f["name"] for f in told["features"]] == [f["name"] for f in expected["features"]]
    for found, wanted in zip(told["features"], expected["features"], strict=True):
        for split, numbers in wanted["splits"].items():
            assert found["splits"][split]["count"] == numbers["count"]
            assert found["splits"][split].get("max") == numbers.get("max")
    report = (days.path / "out" / now.run / layout.REPORT).read_text()
    assert f"{4 * ROWS}" in report


def test_unknown_values_are_counted_by_feature(days):
    """Grades, words and some cities of later days are new; a missing city is filled with one that is known."""
    path = days.day(1)
    warnings = {w.feature: w.message for w in days.append(path).manifest.warnings if w.code == "unseen_values"}
    rows = [line.split(",") for line in Path(path).read_text().splitlines()[1:]]
    grades = sum(cells[5] == "c" for cells in rows)
    train = {i for i in ids(days.dataset)["train"] if i.startswith("d0-")}
    known = {row(0, int(i.partition("-")[2])).split(",")[4] for i in train}
    cities = [cells[4] for cells in rows]
    unknown = sum(city not in known for city in cities)
    assert warnings["grade"].startswith(f"grade: {grades} of {ROWS} values")
    assert warnings["city"].startswith(f"city: {unknown} of {len(cities)} values")
    assert warnings["note"].startswith(f"note: {ROWS} of {2 * ROWS} words")
    assert warnings.keys() == {"grade", "city", "note"}


def test_drift_from_the_dataset_is_said_of_the_last_append_alone(days):
    """All values of the second day are in the first one's range but for the pay, which is doubled with the rows."""
    far = days.day(1, name="far.csv", rows=200)
    lines = Path(far).read_text().splitlines()
    moved = [",".join([cells[0], str(int(cells[1]) + 500), *cells[2:]]) for cells in (x.split(",") for x in lines[1:])]
    Path(far).write_text("\n".join([lines[0], *moved]) + "\n")
    warned = {w.feature: w.message for w in days.append(far).manifest.warnings if w.code == "drift"}
    assert "age drifted by" in warned["age"]
    before = days.dataset.manifest
    again = days.append(days.day(2)).manifest
    assert not {w for w in before.warnings if w.code == "drift"} & set(again.warnings)


def test_a_file_is_known_by_its_content_under_any_name(days):
    copied = days.day(0, name="copy.csv")
    with pytest.raises(UsageError, match=r"copy\.csv \(as .*day0\.csv\): holds what is in .*--skip_known"):
        days.append(copied)
    new = days.day(1)
    outcome = days.append(copied, new, days.day(0), skip_known=True)
    assert dict(outcome.skipped) == {copied: days.day(0), days.day(0): days.day(0)}
    assert_holds(days.dataset, days.day(0), new)
    before = days.dataset.manifest
    assert days.append(copied, new, skip_known=True).manifest == before == days.dataset.manifest


def test_two_new_files_with_one_content_are_added_once(days):
    one, other = days.day(1, name="a.csv"), days.day(1, name="b.csv")
    with pytest.raises(UsageError, match=r"b\.csv \(as .*a\.csv\)"):
        days.append(one, other)
    days.append(one, other, skip_known=True)
    assert_holds(days.dataset, days.day(0), one)


def corrupt(days: Days) -> str:
    path = days.path / "out" / days.dataset.run / "transform_fn" / "saved_model.pb"
    path.write_bytes(path.read_bytes()[::-1])
    return days.day(1)


def text(days: Days, *lines: str) -> str:
    (days.path / "new.csv").write_text("".join(f"{line}\n" for line in lines))
    return str(days.path / "new.csv")


CASES: dict[str, Any] = {
    "other content under a known path": (
        lambda days: days.day(1, name="day0.csv"),
        {},
        UsageError,
        r"day0\.csv: known to .* but with other content now.*file of their own",
    ),
    "a known path with other content is not skipped": (
        lambda days: days.day(1, name="day0.csv"),
        {"skip_known": True},
        UsageError,
        "other content",
    ),
    "no such file": (lambda days: str(days.path / "none.csv"), {}, UsageError, r"none\.csv: no such file"),
    "another header": (
        lambda days: text(days, HEADER.replace("age", "years"), row(1, 1)),
        {},
        UsageError,
        r"new\.csv: .*age",
    ),
    "another kind of values": (
        lambda days: text(days, HEADER, *(f"d{i},old,1,1,a,a,a,no" for i in range(20))),
        {},
        MillraceError,
        "(?s)rejected.*not_a_number 20.*Nothing was committed",
    ),
    "an empty file": (text, {}, (UsageError, MillraceError), r"new\.csv"),
    "a header alone": (lambda days: text(days, HEADER), {}, MillraceError, "contains no records"),
    "a damaged transform": (
        corrupt,
        {},
        MillraceError,
        r"saved_model\.pb",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_added_is_refused_and_the_dataset_stays_as_it_was(days, case):
    make, changes, error, message = CASES[case]
    manifest = Path(days.output, layout.MANIFEST)
    before = manifest.read_bytes()
    path = make(days)
    with pytest.raises(error, match=message):
        days.append(path, **changes)
    assert manifest.read_bytes() == before
    runs = {name for name in folders.walk(days.output) if layout.RUN.match(name)}
    assert {name.partition("/")[0] for name in runs} == {json.loads(before)["run"]}


def test_rejects_of_all_runs_are_kept_and_can_be_replayed_after_an_append(days):
    from beam_jobs.core.options import ReplayOptions
    from beam_jobs.runs.replay import run_replay

    for day in (1, 2):
        path = Path(days.day(day))
        path.write_text(path.read_text() + f"bad{day},old,1,1,a,a,a,no\n")
        days.append(str(path))
    now = days.dataset
    assert now.manifest.rejected == 2
    lines = b"".join(path.read_bytes() for path in sorted(Path(now.run_dir).glob("rejects-*.jsonl")))
    corrected = days.path / "corrected.jsonl"
    corrected.write_bytes(lines.replace(b"old", b"33"))
    assert run_replay(ReplayOptions((str(corrected),), days.output, quiet=True)).added == 2
    assert_holds(days.dataset, days.day(0), *(str(days.path / f"day{day}.csv") for day in (1, 2)))
    assert days.dataset.manifest.appended == now.manifest.appended
    report = Path(days.dataset.run_dir, layout.REPORT).read_text()
    assert report != Path(now.run_dir, layout.REPORT).read_text()


def test_the_command_says_what_it_added_and_prune_keeps_every_run(days, capsys):
    new = days.day(1)
    assert main(["--append_to", days.output, "--input", new, "--quiet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["added"], told["skipped"]) == (ROWS, [])
    assert main(["--append_to", days.output, "--input", new, "--quiet"]) == 2
    capsys.readouterr()
    assert main(["--append_to", days.output, "--input", new, "--skip_known", "--quiet"]) == 0
    assert "nothing to add" in capsys.readouterr().out
    assert main(["--append_to", days.output, "--input", days.day(2), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert f"added      {ROWS:>12,} rows" in out
    from schemas.dataset.lease import hold

    with hold(days.output, run="prune") as held:
        prune(days.output, held, keep_previous=False)
    assert_holds(open_dataset(days.output), days.day(0), new, days.day(2))


def test_a_dataset_of_an_earlier_release_is_compared_with_its_files_or_by_path_and_size(days):
    """The digests are taken from files that are there as they were read; of others it is said."""
    manifest = Path(days.output, layout.MANIFEST)
    data = json.loads(manifest.read_text())
    for file in data["inputs"]:
        del file["digest"]
        file["version"] = str(Path(file["path"]).stat().st_mtime_ns)
    manifest.write_text(json.dumps(data))
    copied = days.day(0, name="copy.csv")
    with pytest.raises(UsageError, match=r"copy\.csv \(as"):
        days.append(copied)
    Path(days.path / "day0.csv").unlink()
    notes: list[str] = []
    from beam_jobs.core.options import AppendOptions
    from beam_jobs.runs.append import run_append

    run_append(AppendOptions(days.output, (copied,), quiet=True), report=notes.extend)
    assert any("kept no digests" in note and "day0.csv" in note for note in notes)
    assert days.dataset.manifest.written == 2 * ROWS
