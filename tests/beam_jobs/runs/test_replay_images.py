"""Replays of images: the mended file is read again, by its corrected path or line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_jobs.core.options import AppendOptions, JobOptions, ReplayOptions
from beam_jobs.runs.append import run_append
from beam_jobs.runs.job import run_job
from beam_jobs.runs.replay import Outcome, run_replay
from schemas.dataset import Dataset, layout, open_dataset
from schemas.errors import UsageError
from schemas.rejects import Reject, read_rejects
from tests.support.image_files import draw, write_folders
from tests.support.replaying import accounts_hold
from tests.support.written_records import examples

FOLDERS = """\
name: shapes
format: image_folder
images: {resize: {exact: [16, 16]}, channels: {means: [123, 117, 104]}, store: raw}
split: {train: 0.6, eval: 0.4, test: 0}
"""
LISTED = FOLDERS.replace("images: {", "images: {listing: csv, root: raw, ")
PNG = tf.io.encode_png(draw(0, 5)).numpy()


def job(folder: Path, schema: str, *inputs: str, output: str = "out", **changes: Any) -> Dataset:
    (folder / "schema.yaml").write_text(schema)
    run_job(
        JobOptions(
            schema=str(folder / "schema.yaml"),
            input=inputs,
            output=str(folder / output),
            max_reject_fraction=1.0,
            quiet=True,
            **changes,
        )
    )
    return open_dataset(str(folder / output))


def rejects_of(dataset: Dataset) -> dict[str, Reject]:
    """By what the listing says of each."""
    files = sorted(Path(dataset.run_dir).glob("rejects-*"))
    return {r.raw.decode(): r for path in files for r in read_rejects(path.read_bytes())}


def replay(folder: Path, rejects: list[Reject], mend: Callable[[str], str] = str) -> Outcome:
    lines = [json.dumps(json.loads(r.to_json()) | {"raw": mend(r.raw.decode())}) for r in rejects]
    (folder / "corrected.jsonl").write_text("\n".join(lines))
    return run_replay(ReplayOptions((str(folder / "corrected.jsonl"),), str(folder / "out"), quiet=True))


def stored(dataset: Dataset) -> list[tuple[str, ...]]:
    """Split, name, class and pixels of every record."""
    keys = ("image/filename", "image/class/label", "image/class/text", "image/encoded")
    return sorted(
        (split, *(str(e[key][0]) for key in keys)) for split in dataset.splits for e in examples(dataset, split)
    )


@pytest.mark.slow
def test_mended_files_of_folders_become_what_they_would_have_been(tmp_path):
    write_folders(tmp_path / "raw", each=8)
    disc = tmp_path / "raw" / "disc"
    for name in ("cut.png", "none.png", "odd\tname.png"):
        (disc / name).write_bytes(PNG[: len(PNG) // 2])
    before = job(tmp_path, FOLDERS, str(tmp_path / "raw/*/*"))
    graph = (Path(before.run_dir) / layout.INGEST_FN / "saved_model.pb").read_bytes()
    rejects = rejects_of(before)
    assert len(rejects) == 3

    (disc / "cut.png").write_bytes(PNG)
    (disc / "odd\tname.png").rename(disc / "a name.png")
    outcome = replay(tmp_path, list(rejects.values()), lambda path: path.replace("odd\tname", "a name"))
    middle = open_dataset(before.path)
    accounts_hold(middle)
    assert (outcome.added, outcome.again) == (1, 2)
    left = rejects_of(middle)
    assert set(left) == {str(disc / "none.png"), str(disc / "a name.png")}
    renamed = left[str(disc / "a name.png")]  # known by its old place, with its new name and reason
    was = rejects[str(disc / "odd\tname.png")]
    assert (renamed.source, renamed.offset) == (was.source, was.offset)
    assert renamed.reason in ("truncated_image", "undecodable_image")

    for name in ("none.png", "a name.png"):
        (disc / name).write_bytes(PNG)
    assert replay(tmp_path, list(left.values())).added == 2
    after = open_dataset(before.path)
    accounts_hold(after)
    assert after.manifest.rejected == 0
    assert after.manifest.runs == {before.run, middle.run, after.run}
    expected = job(tmp_path, FOLDERS, str(tmp_path / "raw/*/*"), output="good", transform_from=before.path)
    assert stored(after) == stored(expected)
    ingest = Path(after.run_dir) / layout.INGEST_FN / "saved_model.pb"
    assert ingest.read_bytes() == graph

    again = replay(tmp_path, list(left.values()))
    assert (again.added, again.choice.gone) == (0, 2)
    assert open_dataset(before.path).run == after.run


@pytest.mark.slow
def test_lines_of_a_list_are_corrected_and_the_list_need_not_be_there(tmp_path):
    write_folders(tmp_path / "raw", each=8)
    names = [f"{p.parent.name}/{p.name}" for p in sorted((tmp_path / "raw").glob("*/*"))]
    good = ["path,label", *(f"{name},{name.partition('/')[0]}" for name in names)]
    wrong = {3: f"../{good[3]}", 5: good[5].partition(",")[0], 12: good[12].replace(".", "_")}
    (tmp_path / "list.csv").write_text("\n".join(wrong.get(i, line) for i, line in enumerate(good)))
    before = job(tmp_path, LISTED, str(tmp_path / "list.csv"))
    rejects = rejects_of(before)
    assert {r.reason for r in rejects.values()} == {"path_outside_root", "too_few_columns", "unreadable_file"}

    (tmp_path / "list.csv").unlink()
    mended = {line: good[i] for i, line in wrong.items()}
    assert replay(tmp_path, list(rejects.values()), lambda raw: mended[raw]).added == 3
    after = open_dataset(before.path)
    accounts_hold(after)
    (tmp_path / "list.csv").write_text("\n".join(good))
    expected = job(tmp_path, LISTED, str(tmp_path / "list.csv"), output="good", transform_from=before.path)
    assert stored(after) == stored(expected)


@pytest.mark.slow
def test_a_label_that_is_no_class_stays_rejected(tmp_path):
    write_folders(tmp_path / "raw", each=4)
    everything = LISTED.replace("0.6, eval: 0.4", "1, eval: 0") + "label: {values: [disc, bar]}\n"
    lines = [f"disc/{i:03d}.{'png' if i % 3 else 'jpg'},disc" for i in range(4)]
    (tmp_path / "list.csv").write_text("\n".join([*lines[:3], lines[3].replace(",disc", ",ring")]))
    before = job(tmp_path, everything, str(tmp_path / "list.csv"))
    (reject,) = rejects_of(before).values()
    assert (reject.reason, reject.column) == ("label_not_in_values", "label")
    with pytest.raises(Exception, match="none of 1 corrected records could be written"):
        replay(tmp_path, [reject], lambda raw: raw.replace("ring", "disk"))
    assert replay(tmp_path, [reject], lambda raw: raw.replace("ring", "disc")).added == 1
    accounts_hold(open_dataset(before.path))


@pytest.mark.slow
def test_pairs_are_not_replayed_and_do_not_grow(tmp_path):
    write_folders(tmp_path / "raw", each=4)
    schema = FOLDERS[: FOLDERS.index("split:")].replace("image_folder", "image_pairs") + (
        "pairs: {seed: 3, train: {identities: 1.0, same: 4, different: 4}}\n"
    )
    before = job(tmp_path, schema, str(tmp_path / "raw/*/*"))
    reject = Reject("x", 0, "pair", "r", None, "", b"a,b")
    with pytest.raises(UsageError, match=r"holds pairs of images, which .* cannot be replayed one by one"):
        replay(tmp_path, [reject])
    with pytest.raises(UsageError, match=r"holds pairs of images, .* identities could change their splits"):
        run_append(AppendOptions(str(tmp_path / "out"), (str(tmp_path / "schema.yaml"),), quiet=True))
    assert open_dataset(before.path).run == before.run
