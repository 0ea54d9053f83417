"""Replays: corrected rejects and mended images become records, once, and are what they would have been at first."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_jobs.preprocess import main
from schemas.dataset import OpenDataset, layout
from schemas.dataset.statistics import read_statistics
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject
from tests.support.commands import assert_light
from tests.support.dataset_faults import assert_every_damage_is_found
from tests.support.datasets import (
    BAD,
    BROKEN,
    FEW,
    FEW_HEADER,
    FEW_ROWS,
    Folder,
    accounts_hold,
    as_good,
    contents,
    ids,
    rejects_of,
    text_of,
    write_rejecting,
)
from tests.support.image_files import IMAGES, LISTED_IMAGES, draw, write_folders
from tests.support.written_records import examples
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions

pytestmark = pytest.mark.slow


def in_another_order(line: str) -> str:
    name, age, rest = line.split(",", 2)
    return f"{age},{rest},{name}"


def as_offsets_count(source: str, encoding: str) -> bytes:
    """The file's bytes, decompressed, and of UTF-16 the same text in UTF-8."""
    data = Path(source).read_bytes()
    data = gzip.decompress(data) if source.endswith(".gz") else data
    return ("\ufeff" + data.decode(encoding)).encode() if encoding == "utf-16" else data


BY_FILE = FEW[: FEW.index("split:")] + 'split: {by: file, train: "a.csv", eval: "b.csv"}\n'
LATIN = FEW.replace("header: present", "header: present, encoding: latin-1, quoted_newlines: true").replace(
    "[id]", "row"
)


@pytest.fixture(scope="session")
def once_replayed(share) -> Path:
    """The dataset of 40 rows, of whose 4 rejects all but the first are corrected and replayed. Not to be changed."""

    def build(path: Path) -> None:
        folder, dataset = write_rejecting(path)
        left, *_ = rejects_of(dataset)
        assert folder.replay(folder.correct(dataset, lambda r: None if r == left else as_good(r))).added == 3

    return share("once_replayed", build)


@pytest.fixture
def replayed(folder: Folder, once_replayed: Path) -> Folder:
    """The same: a copy of its own for each test."""
    shutil.copytree(once_replayed / "out", folder.output)
    return folder


def assert_as_of_good_rows(folder: Folder, before: OpenDataset, schema: str, *good: str) -> None:
    """Asserts that a dataset holds what a job writes of good files by the same transform, and describes it alike."""
    after = folder.dataset
    accounts_hold(after)
    assert (after.manifest.read, after.manifest.rejected) == (before.manifest.read, 0)
    assert after.manifest.written == after.manifest.replayed + before.manifest.written
    output = str(folder.path / "good")
    expected = folder.job(schema, *good, output=output, transform_from=str(folder.output))
    assert contents(after) == contents(expected)
    assert described(after) == described(expected)


def test_bad_rows_replayed_make_the_dataset_that_good_rows_make(folder):
    """Of files in different layouts, which are gone by then; the other dataset applies the same transform."""
    layouts: dict[str, tuple[Callable[[str], str], str]] = {
        "rows.csv": (str, "utf-8"),
        "turned.csv": (in_another_order, "utf-8"),
        "wide.csv": (str, "utf-16"),
        "packed.csv.gz": (str, "utf-8"),
    }
    sources = {
        folder.write(name, map(change, [FEW_HEADER, *BAD]), encoding=encoding): (change, encoding)
        for name, (change, encoding) in layouts.items()
    }
    before = folder.job(FEW, *sources, max_rejects=len(BROKEN) * len(sources))
    for reject in rejects_of(before):
        data = as_offsets_count(reject.source, sources[reject.source][1])
        assert data[reject.offset :].startswith(reject.raw)
    for path in sources:
        Path(path).unlink()

    def mended(reject: Reject) -> str:
        change, _ = sources[reject.source]
        return change(next(FEW_ROWS[i] for i, (bad, _) in BROKEN.items() if change(bad).encode() == reject.raw))

    assert folder.replay(folder.correct(before, mended)).added == len(BROKEN) * len(layouts)
    goods = [folder.write(f"good{i}.csv", [FEW_HEADER, *FEW_ROWS]) for i in range(len(layouts))]
    assert_as_of_good_rows(folder, before, FEW, *goods)


def described(dataset: OpenDataset) -> list[dict[str, Any]]:
    """The statistics of its features; of so few values all are exact, but for the last digits of mean and deviation."""
    features = read_statistics(dataset.path)["features"]
    for split_statistics in (split_statistics for item in features for split_statistics in item["splits"].values()):
        split_statistics |= {
            name: pytest.approx(split_statistics[name], rel=1e-12) for name in {"mean", "std"} & split_statistics.keys()
        }
    return features


def test_latin_1_with_line_ends_inside_quotes_split_by_row(folder, shared_rejecting):
    good = [row.replace(", Köln", ",\nKöln") for row in FEW_ROWS]
    bad = [row.replace("k5,", "k5,x") for row in good]
    source = folder.write("rows.csv", [FEW_HEADER, *bad], encoding="latin-1")
    before = folder.job(LATIN, source, transform_from=shared_rejecting[1].path)
    assert folder.replay(folder.correct(before, lambda r: good[5])).added == 1
    assert_as_of_good_rows(folder, before, LATIN, folder.write("good.csv", [FEW_HEADER, *good], encoding="latin-1"))


def test_a_row_goes_to_the_split_of_its_file(folder):
    a, b = (folder.write(name, [FEW_HEADER, *BAD]) for name in ("a.csv", "b.csv"))
    before = folder.job(BY_FILE, a, b, compression="gzip")
    assert {s: before.rows(s) for s in before.splits} == {"train": 36, "eval": 36}
    folder.replay(folder.correct(before, lambda r: as_good(r) if r.source == b else None))
    after = folder.dataset
    accounts_hold(after)
    assert {s: after.rows(s) for s in after.splits} == {"train": 36, "eval": 40}
    assert [(f.path, f.rejected) for f in after.manifest.inputs] == [(a, 4), (b, 0)]


def test_the_new_run_is_complete_and_refers_to_the_old_shards(replayed):
    after = replayed.dataset
    new, (old,) = after.manifest, after.manifest.previous
    assert new.runs == {old, new.run}
    assert (new.transform_from, new.rejected) == (old, 1)
    for split in after.splits:
        runs = [path.split("/")[-2] for path in after.shards(split)]
        assert (runs[0], runs) == (old, sorted(runs))
    # A model sees the very same transform, and the exports are checked with the same records.
    for name in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA, "parity"):
        old_files, new_files = (
            {f.path.partition("/")[2]: f.sha256 for f in files if f"/{name}/" in f.path}
            for files in (new.previous_files, new.files)
        )
        assert old_files == new_files != {}
    assert all(f.path.startswith(new.run) for f in new.files)
    assert_every_damage_is_found(replayed.output, replayed.path)
    assert sorted(os.listdir(replayed.output)) == sorted([old, new.run, layout.MANIFEST])
    read = 0
    for split in after.splits:
        options = InputOptions(batch_size=4, num_epochs=1)
        read += sum(len(labels) for _, labels in input_fn(after, split, mode="eval", options=options))
    assert read == new.written == 39


def test_what_was_replayed_is_never_added_again(replayed, once_replayed):
    manifest = (replayed.output / layout.MANIFEST).read_bytes()
    again = replayed.replay(str(once_replayed / "corrected.jsonl"))
    assert (again.added, again.choice.gone) == (0, 3)
    assert (replayed.output / layout.MANIFEST).read_bytes() == manifest
    accounts_hold(replayed.dataset)


def test_overwriting_warns_of_corrections_that_no_input_has_and_they_can_be_replayed_again(
    replayed, once_replayed, capsys
):
    replayed.job(FEW, str(once_replayed / "rows.csv"), overwrite=True)
    warning = f"warning: --overwrite: {replayed.output} holds 3 corrected records, added by --replay and in no"
    assert warning in capsys.readouterr().err
    assert replayed.dataset.manifest.replayed == 0
    assert replayed.replay(str(once_replayed / "corrected.jsonl")).added == replayed.dataset.manifest.replayed == 3


def test_a_replay_of_a_replay(folder, rejecting):
    """Some are corrected now, some wrongly, and the rest later."""
    first = {3: FEW_ROWS[3], 8: "k8,21,still open", 15: BAD[15]}
    raws = {BAD[i].encode(): row for i, row in first.items()}
    first_outcome = folder.replay(folder.correct(rejecting, lambda r: raws.get(r.raw)))
    middle = folder.dataset
    assert (first_outcome.added, len(first_outcome.choice.records), first_outcome.choice.unchanged) == (1, 2, 1)
    accounts_hold(middle)
    left = {r.raw.decode(): r.reason for r in rejects_of(middle)}
    assert left == {first[8]: "too_few_columns", BAD[15]: "too_few_columns", BAD[22]: "missing_value"}

    later = {first[8]: FEW_ROWS[8], BAD[15]: FEW_ROWS[15], BAD[22]: FEW_ROWS[22]}
    second_outcome = folder.replay(folder.correct(middle, lambda r: later[r.raw.decode()]))
    after = folder.dataset
    assert (second_outcome.added, after.manifest.rejected) == (3, 0)
    accounts_hold(after)
    assert after.manifest.runs == {rejecting.run, middle.run, after.run}
    assert after.manifest.transform_from == rejecting.run
    assert sorted(itertools.chain(*ids(after).values())) == sorted(row.partition(",")[0] for row in FEW_ROWS)


def test_if_all_corrections_are_invalid_the_dataset_is_unchanged_and_they_are_kept(folder, rejecting, capsys):
    manifest = (folder.path / "out" / layout.MANIFEST).read_bytes()
    corrected = folder.correct(
        rejecting, lambda r: {BAD[3]: "k3,older,a,yes", BAD[8]: "k8,1,a,maybe"}.get(r.raw.decode())
    )
    assert main(["--replay", corrected, "--append_to", str(folder.output), "--quiet"]) == 1
    errors = capsys.readouterr().err
    assert "none of 2 corrected records could be written; the dataset is unchanged" in errors
    assert "label_not_in_vocabulary 1" in errors
    assert (folder.path / "out" / layout.MANIFEST).read_bytes() == manifest
    rejects = folder.failed_rejects()
    assert {r.raw: r.reason for r in rejects} == {
        b"k3,older,a,yes": "not_a_number",
        b"k8,1,a,maybe": "label_not_in_vocabulary",
    }
    assert set(os.listdir(folder.output)) == {rejecting.run, layout.MANIFEST, layout.FAILED}


def test_the_command_reports_the_result_of_every_line(folder, rejecting, capsys):
    fixes = {BAD[3]: FEW_ROWS[3], BAD[8]: "k8,x,a,no", BAD[15]: BAD[15]}
    corrected = folder.correct(rejecting, lambda r: fixes.get(r.raw.decode()))
    text = Path(corrected).read_text()
    unknown = json.dumps({"source": rejecting.manifest.inputs[0].path, "offset": 1, "raw": "k99,1,a,no"})
    Path(corrected).write_text(f"{text}{text.splitlines()[0]}\n\n{unknown}\n")
    assert main(["--replay", corrected, "--append_to", str(folder.output), "--quiet"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:5] == [
        "added 1 row",
        "1 rejected once more, with their new reasons",
        "1 unchanged, so they stay rejected",
        "1 already replayed or never rejected",
        "1 given more than once",
    ]
    accounts_hold(folder.dataset)
    assert main(["--replay", corrected, "--append_to", str(folder.output), "--quiet"]) == 0
    assert capsys.readouterr().out.startswith(f"nothing to add: {folder.output} is unchanged\n")


LINE: dict[str, Any] = {"source": "rows.csv", "offset": 5, "raw": "k1,2,a,no"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "2: is not JSON"),
        ("[]", r"2: found '\[\]'; expected an object"),
        ("\xff".encode("latin-1"), "2: is not UTF-8 at byte 0"),
        ({**LINE, "offset": "5"}, "2: offset is '5'; expected a whole number"),
        ({"offset": 5, "raw": "x"}, "2: source is 'missing'; expected a path"),
        ({"source": "rows.csv", "offset": 5}, "2: holds neither raw nor raw_base64"),
        ({**LINE, "raw_base64": "eA=="}, "2: holds both raw and raw_base64"),
        ({"source": "rows.csv", "offset": 5, "raw_base64": "?"}, "2: raw_base64 is not base64"),
        ({**LINE, "raw": 5}, "2: raw is '5'; expected text"),
        ({**LINE, "source": "other.csv"}, "2: 'other.csv' is not an input of this dataset, which was read from "),
        ({**LINE, "raw": "\ud800"}, r"2: raw holds '\\ud800', which .*rows.csv cannot: it is in utf-8"),
        ("twice", "2: corrects the record at .* in another way than .*:1 does"),
    ],
)
def test_a_line_that_cannot_be_taken_is_named_and_nothing_is_done(shared_rejecting, line, message):
    folder, dataset = shared_rejecting
    good = json.loads(rejects_of(dataset)[0].to_json()) | {"raw": FEW_ROWS[3]}
    if line == "twice":
        line = good | {"raw": FEW_ROWS[4]}
    if isinstance(line, dict):
        place = {"source": good["source"], "offset": good["offset"]} if line.get("source") == "rows.csv" else {}
        line = json.dumps({**line, **(place if type(line.get("offset")) is int else {})})
    data = line if isinstance(line, bytes) else line.encode()
    path = folder.path / "bad.jsonl"
    path.write_bytes(json.dumps(good).encode() + b"\n" + data + b"\n")
    with pytest.raises(UsageError, match=rf"bad\.jsonl:{message}"):
        folder.replay(str(path))
    assert folder.dataset.run == dataset.run


def test_rejects_corrected_in_the_run_itself_are_refused(folder, rejecting):
    (path,) = Path(rejecting.run_dir).glob("rejects-*")
    text = path.read_text()
    path.write_text(text.replace("k3,old", "k3,020"))
    with pytest.raises(MillraceError, match=r"was changed since the dataset was written.*in a copy"):
        folder.replay(str(path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replay", "x.jsonl"], "required: --append_to"),
        (["--replay", "x", "--append_to", "out", "--schema", "s.yaml"], "--schema: not with --append_to"),
        (["--replay", "x", "--append_to", "out", "--max_rejects=5"], "--max_rejects: not with --replay"),
        (
            ["--replay", "x", "--append_to", "out", "--input", "a.csv"],
            "found both of --input, for new input, and --replay",
        ),
        (["--replay", "x", "--append_to", "out", "--runner", "FnApiRuner"], "did you mean FnApiRunner?"),
        (["--replay", "x", "--append_to", "nowhere"], "--append_to nowhere: no manifest.json"),
    ],
)
def test_usage_errors_are_reported_before_any_work(arguments, message):
    assert_light("beam_jobs.preprocess", arguments, code=2, message=message)


PNG = tf.io.encode_png(draw(0, 5)).numpy()


def by_text(dataset: OpenDataset) -> dict[str, Reject]:
    """The rejects, by what the listing says of each."""
    return {text_of(reject): reject for reject in rejects_of(dataset)}


def stored(dataset: OpenDataset) -> list[tuple[str, ...]]:
    """Split, name, class and pixels of every record."""
    keys = ("image/filename", "image/class/label", "image/class/text", "image/encoded")
    return sorted(
        (split, *(str(e[key][0]) for key in keys)) for split in dataset.splits for e in examples(dataset, split)
    )


def of_good(folder: Folder, schema: str, inputs: str, before: OpenDataset) -> OpenDataset:
    """What a job writes of the files as they should have been, by the same transform."""
    more = {"transform_from": before.path, "max_reject_fraction": 1.0}
    return folder.job(schema, str(folder.path / inputs), output=str(folder.path / "good"), **more)


def test_mended_files_of_folders_become_what_they_would_have_been(folder, tmp_path):
    write_folders(tmp_path / "raw", per_class=8)
    disc = tmp_path / "raw" / "disc"
    for name in ("cut.png", "none.png", "odd\tname.png"):
        (disc / name).write_bytes(PNG[: len(PNG) // 2])
    before = folder.job(IMAGES, str(tmp_path / "raw/*/*"), max_reject_fraction=1.0)
    graph = (Path(before.run_dir) / layout.INGEST_FN / "saved_model.pb").read_bytes()
    rejects = by_text(before)
    assert len(rejects) == 3

    (disc / "cut.png").write_bytes(PNG)
    (disc / "odd\tname.png").rename(disc / "a name.png")
    outcome = folder.replay(folder.correct(before, lambda r: text_of(r).replace("odd\tname", "a name")))
    middle = folder.dataset
    accounts_hold(middle)
    assert (outcome.added, len(outcome.choice.records)) == (1, 3)
    left = by_text(middle)
    assert set(left) == {str(disc / "none.png"), str(disc / "a name.png")}
    renamed = left[str(disc / "a name.png")]  # known by its old place, with its new name and reason
    was = rejects[str(disc / "odd\tname.png")]
    assert (renamed.source, renamed.offset) == (was.source, was.offset)
    assert renamed.reason in ("truncated_image", "undecodable_image")

    for name in ("none.png", "a name.png"):
        (disc / name).write_bytes(PNG)
    corrected = folder.correct(middle)
    assert folder.replay(corrected).added == 2
    after = folder.dataset
    accounts_hold(after)
    assert after.manifest.rejected == 0
    assert after.manifest.runs == {before.run, middle.run, after.run}
    assert stored(after) == stored(of_good(folder, IMAGES, "raw/*/*", before))
    ingest = Path(after.run_dir) / layout.INGEST_FN / "saved_model.pb"
    assert ingest.read_bytes() == graph

    again = folder.replay(corrected)
    assert (again.added, again.choice.gone) == (0, 2)
    assert folder.dataset.run == after.run


def test_lines_of_a_list_are_corrected_and_the_list_need_not_be_there(folder, tmp_path):
    """A label that is no class of the dataset stays rejected, until it is one."""
    write_folders(tmp_path / "raw", per_class=8)
    names = [f"{p.parent.name}/{p.name}" for p in sorted((tmp_path / "raw").glob("*/*"))]
    labels = sorted({name.partition("/")[0] for name in names})
    schema = f"{LISTED_IMAGES}label: {{values: {json.dumps(labels)}}}\n"
    good = ["path,label", *(f"{name},{name.partition('/')[0]}" for name in names)]
    wrong = {3: f"../{good[3]}", 5: good[5].partition(",")[0], 7: f"{names[6]},ring", 12: good[12].replace(".", "_")}
    (tmp_path / "list.csv").write_text("\n".join(wrong.get(i, line) for i, line in enumerate(good)))
    before = folder.job(schema, str(tmp_path / "list.csv"), max_reject_fraction=1.0)
    reasons = {"path_outside_root", "too_few_columns", "label_not_in_values", "unreadable_file"}
    assert {r.reason for r in rejects_of(before)} == reasons

    (tmp_path / "list.csv").unlink()
    mended = {wrong[i]: good[i] for i in wrong} | {wrong[7]: f"{names[6]},disk"}
    outcome = folder.replay(folder.correct(before, lambda r: mended[text_of(r)]))
    assert (outcome.added, len(outcome.choice.records)) == (3, 4)
    (left,) = rejects_of(folder.dataset)
    assert (left.reason, left.column, text_of(left)) == ("label_not_in_values", "label", f"{names[6]},disk")
    assert folder.replay(folder.correct(folder.dataset, lambda r: good[7])).added == 1
    after = folder.dataset
    accounts_hold(after)
    (tmp_path / "list.csv").write_text("\n".join(good))
    assert stored(after) == stored(of_good(folder, schema, "list.csv", before))
