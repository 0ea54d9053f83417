"""Appends: new files and images become records of the dataset, once, as if they had been there before."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_jobs.preprocess import main
from schemas.dataset import OpenDataset, layout
from schemas.dataset.lease import hold
from schemas.dataset.prune import prune
from schemas.dataset.statistics import read_statistics
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders
from tests.support.dataset_faults import assert_every_damage_is_found
from tests.support.datasets import (
    DAY_ROWS,
    DAYS,
    DAYS_HEADER,
    Folder,
    accounts_hold,
    assert_holds,
    copied,
    day_row,
    ids,
    text_of,
)
from tests.support.image_files import IMAGES, LISTED_IMAGES, draw
from tests.support.written_records import records


@pytest.fixture(scope="session")
def first_day(share) -> Path:
    """The dataset of the first day, written once. Not to be changed."""

    def build(folder: Path) -> None:
        days = Folder(folder)
        days.job(DAYS, days.day(0))

    return share("first_day", build)


@pytest.fixture
def days(tmp_path: Path, first_day: Path) -> Folder:
    """The first day, and a dataset of it: a copy of its own for each test."""
    return copied(first_day, tmp_path)


def test_appended_days_are_what_they_would_have_been_with_the_transform_of_the_first(days):
    """Two appends, of one file and of two; the other dataset applies the same transform to all four at once."""
    first = days.dataset
    paths = [days.day(0), *(days.day(day) for day in (1, 2, 3))]
    first_outcome = days.append(paths[1])
    assert (first_outcome.added, first_outcome.skipped) == (DAY_ROWS, ())
    assert_holds(days.dataset, *paths[:2])
    assert (Path(first.run_dir) / layout.REPORT).exists()  # a reader may have the first dataset open
    assert_every_damage_is_found(days.output, days.path)
    second_outcome = days.append(*paths[2:])
    assert second_outcome.added == 2 * DAY_ROWS
    now = days.dataset
    assert_holds(now, *paths)
    named = {Path(first.path, file.path) for file in now.manifest.shard_files}
    assert set(Path(first.run_dir).iterdir()) <= named  # nobody reads the rest any more
    assert_every_damage_is_found(days.output, days.path)
    assert now.manifest.appended == (first_outcome.manifest.run, second_outcome.manifest.run)
    assert now.manifest.transform_from == first.run
    old, shards = first.shards("train"), now.shards("train")
    assert (shards[: len(old)], len(shards)) == (old, len(old) + 2)  # one for each append, which are small
    whole = days.job(DAYS, *paths, output=str(days.path / "whole"), transform_from=str(days.output))
    assert ids(now) == ids(whole)
    assert {split: records(now, split) for split in now.splits} == {s: records(whole, s) for s in whole.splits}
    statistics, expected = (read_statistics(dataset.path) for dataset in (now, whole))
    assert [f["name"] for f in statistics["features"]] == [f["name"] for f in expected["features"]]
    for feature, expected_feature in zip(statistics["features"], expected["features"], strict=True):
        for split, numbers in expected_feature["splits"].items():
            assert feature["splits"][split]["count"] == numbers["count"]
            assert feature["splits"][split].get("max") == numbers.get("max")
    report = (days.path / "out" / now.run / layout.REPORT).read_text()
    assert f"{4 * DAY_ROWS}" in report


def test_unknown_values_are_counted_by_feature(days):
    """Grades, words and some cities of later days are new; a missing city is filled with one that is known."""
    path = days.day(1)
    warnings = {w.feature: w.message for w in days.append(path).manifest.warnings if w.code == "unseen_values"}
    rows = [line.split(",") for line in Path(path).read_text().splitlines()[1:]]
    grades = sum(cells[5] == "c" for cells in rows)
    train = {i for i in ids(days.dataset)["train"] if i.startswith("d0-")}
    known_cities = {day_row(0, int(i.partition("-")[2])).split(",")[4] for i in train}
    cities = [cells[4] for cells in rows]
    unknown = sum(city not in known_cities for city in cities)
    assert warnings["grade"].startswith(f"grade: its list of values lacks {grades} of {DAY_ROWS} values")
    assert warnings["city"].startswith(f"city: its vocabulary lacks {unknown} of {len(cities)} values")
    assert warnings["note"].startswith(f"note: its vocabulary lacks {DAY_ROWS} of {2 * DAY_ROWS} words")
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
    path, copy = days.day(1, name="a.csv"), days.day(1, name="b.csv")
    with pytest.raises(UsageError, match=r"b\.csv \(as .*a\.csv\)"):
        days.append(path, copy)
    days.append(path, copy, skip_known=True)
    assert_holds(days.dataset, days.day(0), path)


def corrupt(days: Folder) -> str:
    path = days.path / "out" / days.dataset.run / "transform_fn" / "saved_model.pb"
    path.write_bytes(path.read_bytes()[::-1])
    return days.day(1)


def with_a_bad_row(days: Folder, day: int) -> str:
    """The file of a day, with one more row, which is rejected."""
    path = Path(days.day(day))
    path.write_text(path.read_text() + f"bad{day},old,1,1,a,a,a,no\n")
    return str(path)


def with_another_digit(days: Folder) -> str:
    """The file of the first day, one digit of which was changed."""
    path = days.path / "day0.csv"
    data = path.read_bytes()
    path.write_bytes(data.replace(b",20,", b",21,", 1))
    assert path.read_bytes() != data
    return str(path)


def text(days: Folder, *lines: str) -> str:
    (days.path / "new.csv").write_text("".join(f"{line}\n" for line in lines))
    return str(days.path / "new.csv")


CASES: dict[str, Any] = {
    "other content under a known path": (
        lambda days: days.day(1, name="day0.csv"),
        {},
        UsageError,
        r"day0\.csv: known to .* but with other content now.*file of their own",
    ),
    "other content of the same size": (
        with_another_digit,
        {"skip_known": True},
        UsageError,
        r"day0\.csv: known to .* but with other content now",
    ),
    "another kind of values": (
        lambda days: text(days, DAYS_HEADER, *(f"d{i},old,1,1,a,a,a,no" for i in range(20))),
        {},
        MillraceError,
        "(?s)rejected.*not_a_number 20.*Nothing was committed",
    ),
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
    manifest = days.output / layout.MANIFEST
    before = manifest.read_bytes()
    path = make(days)
    with pytest.raises(error, match=message):
        days.append(path, **changes)
    assert manifest.read_bytes() == before
    runs = {name for name in folders.walk(str(days.output)) if layout.RUN.match(name)}
    assert {name.partition("/")[0] for name in runs} == {json.loads(before)["run"]}


def test_rejects_of_all_runs_are_kept_and_can_be_replayed_after_an_append(days):
    for day in (1, 2):
        days.append(with_a_bad_row(days, day))
    now = days.dataset
    assert now.manifest.rejected == 2
    assert days.replay(days.correct(now, lambda r: text_of(r).replace("old", "33"))).added == 2
    assert_holds(days.dataset, days.day(0), *(str(days.path / f"day{day}.csv") for day in (1, 2)))
    assert days.dataset.manifest.appended == now.manifest.appended
    report = Path(days.dataset.run_dir, layout.REPORT).read_text()
    assert report != Path(now.run_dir, layout.REPORT).read_text()


def test_the_command_says_what_it_added_and_prune_keeps_every_run(days, capsys):
    new = days.day(1)
    assert main(["--append_to", str(days.output), "--input", new, "--quiet", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["added"], summary["skipped"]) == (DAY_ROWS, [])
    assert main(["--append_to", str(days.output), "--input", new, "--quiet"]) == 2
    capsys.readouterr()
    assert main(["--append_to", str(days.output), "--input", new, "--skip_known", "--quiet"]) == 0
    assert "nothing to add" in capsys.readouterr().out
    assert main(["--append_to", str(days.output), "--input", days.day(2), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert f"added      {DAY_ROWS:>12,} rows" in out
    assert re.search(r"\ntime +[0-9.]+ s, [0-9.]+ s of them for the job itself\n", out)
    with hold(str(days.output), run="prune") as lease:
        prune(str(days.output), lease, keep_previous=False)
    assert_holds(days.dataset, days.day(0), new, days.day(2))


def write_images(folder: Path, numbers: range, *, within: str = "raw") -> None:
    """PNG files in folders of two classes, all of them different."""
    for i in numbers:
        path = folder / within / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(draw(i % 2, i)).numpy())


def of_images(folder: Folder, schema: str, *inputs: str) -> OpenDataset:
    return folder.job(schema, *inputs, max_reject_fraction=1.0)


def test_images_are_added_once_and_their_rejects_are_replayed(folder, tmp_path):
    """In the splits of a dataset that is written of all images at once."""
    write_images(tmp_path, range(12))
    of_images(folder, IMAGES, f"{tmp_path}/raw/*/*.png")
    write_images(tmp_path, range(12, 20), within="more")
    (tmp_path / "more/a/12.png").write_bytes(b"broken")
    shutil.copy(tmp_path / "raw/a/4.png", tmp_path / "more/a/copy.png")
    with pytest.raises(UsageError, match=r"copy\.png \(as .*raw/a/4\.png\): holds what is in"):
        folder.append(f"{tmp_path}/more/*/*.png", max_reject_fraction=1.0)
    outcome = folder.append(f"{tmp_path}/more/*/*.png", skip_known=True, max_reject_fraction=1.0)
    assert (outcome.added, len(outcome.skipped)) == (7, 1)
    now = folder.dataset
    accounts_hold(now)
    assert (now.manifest.read, now.manifest.rejected, len(now.manifest.inputs)) == (20, 1, 1)
    with pytest.raises(UsageError, match=r"12\.png: rejected by .* before.*--replay"):
        folder.append(f"{tmp_path}/more/a/12.png", max_reject_fraction=1.0)
    write_images(tmp_path, range(12, 13), within="more")
    assert folder.replay(folder.correct(now)).added == 1
    again = folder.append(f"{tmp_path}/more/*/*.png", skip_known=True, max_reject_fraction=1.0)
    assert again.manifest.written == again.before.written == 20
    (tmp_path / "more/a/14.png").write_bytes((tmp_path / "raw/b/5.png").read_bytes() + b" ")
    with pytest.raises(UsageError, match=r"14\.png: known to .* but with other content now"):
        folder.append(f"{tmp_path}/more/*/*.png", skip_known=True, max_reject_fraction=1.0)
    accounts_hold(folder.dataset)
    write_images(tmp_path, range(20), within="all")
    whole = folder.job(IMAGES, f"{tmp_path}/all/*/*.png", output=f"{tmp_path}/whole")
    assert ids(folder.dataset, "image/filename") == ids(whole, "image/filename")


@pytest.mark.slow
def test_a_list_of_images_grows_by_another_list(folder, tmp_path):
    """A class that the dataset lacks is rejected, as in any job whose classes are given."""
    write_images(tmp_path, range(12))
    lines = [f"{'ab'[i % 2]}/{i}.png,{'ab'[i % 2]}" for i in range(12)]
    (tmp_path / "one.csv").write_text("path,label\n" + "\n".join(lines[:8]) + "\n")
    (tmp_path / "two.csv").write_text("path,label\n" + "\n".join([*lines[6:], "a/0.png,other"]) + "\n")
    of_images(folder, LISTED_IMAGES, f"{tmp_path}/one.csv")
    outcome = folder.append(f"{tmp_path}/two.csv", skip_known=True, max_reject_fraction=1.0)
    assert (outcome.added, len(outcome.skipped)) == (4, 3)
    now = folder.dataset
    accounts_hold(now)
    assert sorted(name for split_names in ids(now, "image/filename").values() for name in split_names) == sorted(
        x.split(",")[0] for x in lines
    )
