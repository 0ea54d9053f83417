"""Appends of images: each one once, known by its content, in the splits that its content draws."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from beam_jobs.core.options import AppendOptions, JobOptions, ReplayOptions
from beam_jobs.runs.append import Outcome, run_append
from beam_jobs.runs.job import run_job
from beam_jobs.runs.replay import run_replay
from schemas.dataset import Dataset, open_dataset
from schemas.errors import UsageError
from tests.support.image_files import draw
from tests.support.replaying import accounts_hold
from tests.support.written_records import examples

SCHEMA = """\
name: shapes
format: image_folder
images: {resize: {exact: [16, 16]}, channels: {means: [123, 117, 104]}, store: raw}
split: {train: 0.6, eval: 0.4, test: 0}
"""
LISTED = SCHEMA.replace("images: {", "images: {listing: csv, root: raw, ")


def write_images(folder: Path, numbers: range, *, within: str = "raw") -> None:
    """PNG files in folders of two classes, all of them different."""
    for i in numbers:
        path = folder / within / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(draw(i % 2, i)).numpy())


def write(folder: Path, schema: str, *inputs: str) -> Dataset:
    (folder / "schema.yaml").write_text(schema)
    output = str(folder / "out")
    run_job(JobOptions(str(folder / "schema.yaml"), inputs, output, max_reject_fraction=1.0, quiet=True))
    return open_dataset(output)


def append(folder: Path, *inputs: str, skip_known: bool = False) -> Outcome:
    options = AppendOptions(str(folder / "out"), inputs, skip_known=skip_known, quiet=True, max_reject_fraction=1.0)
    return run_append(options)


def names(dataset: Dataset) -> dict[str, list[str]]:
    return {
        split: sorted(e["image/filename"][0].decode() for e in examples(dataset, split)) for split in dataset.splits
    }


def test_images_are_added_once_and_their_rejects_are_replayed(tmp_path):
    """In the splits of a dataset that is written of all images at once."""
    write_images(tmp_path, range(12))
    base = write(tmp_path, SCHEMA, f"{tmp_path}/raw/*/*.png")
    write_images(tmp_path, range(12, 20), within="more")
    (tmp_path / "more/a/12.png").write_bytes(b"broken")
    shutil.copy(tmp_path / "raw/a/4.png", tmp_path / "more/a/copy.png")
    with pytest.raises(UsageError, match=r"copy\.png \(as .*raw/a/4\.png\): .* holds this image already"):
        append(tmp_path, f"{tmp_path}/more/*/*.png")
    outcome = append(tmp_path, f"{tmp_path}/more/*/*.png", skip_known=True)
    assert (outcome.added, len(outcome.skipped)) == (7, 1)
    now = open_dataset(base.path)
    accounts_hold(now)
    assert (now.manifest.read, now.manifest.rejected, len(now.manifest.inputs)) == (20, 1, 1)
    with pytest.raises(UsageError, match=r"12\.png: rejected by .* before.*--replay"):
        append(tmp_path, f"{tmp_path}/more/a/12.png")
    write_images(tmp_path, range(12, 13), within="more")
    (rejects,) = Path(now.run_dir).glob("rejects-*.jsonl")
    corrected = shutil.copy(rejects, tmp_path / "corrected.jsonl")
    assert run_replay(ReplayOptions((str(corrected),), base.path, quiet=True)).added == 1
    again = append(tmp_path, f"{tmp_path}/more/*/*.png", skip_known=True)
    assert again.manifest.written == again.before.written == 20
    (tmp_path / "more/a/14.png").write_bytes((tmp_path / "raw/b/5.png").read_bytes() + b" ")
    with pytest.raises(UsageError, match=r"14\.png: known to .* but with other content now"):
        append(tmp_path, f"{tmp_path}/more/*/*.png", skip_known=True)
    accounts_hold(open_dataset(base.path))
    write_images(tmp_path, range(20), within="all")
    (tmp_path / "whole").mkdir()
    whole = write(tmp_path / "whole", SCHEMA, f"{tmp_path}/all/*/*.png")
    assert names(open_dataset(base.path)) == names(whole)


@pytest.mark.slow
def test_a_list_of_images_grows_by_another_list(tmp_path):
    """A class that the dataset lacks is rejected, as in any job whose classes are given."""
    write_images(tmp_path, range(12))
    lines = [f"{'ab'[i % 2]}/{i}.png,{'ab'[i % 2]}" for i in range(12)]
    (tmp_path / "one.csv").write_text("path,label\n" + "\n".join(lines[:8]) + "\n")
    (tmp_path / "two.csv").write_text("path,label\n" + "\n".join([*lines[6:], "a/0.png,other"]) + "\n")
    write(tmp_path, LISTED, f"{tmp_path}/one.csv")
    outcome = append(tmp_path, f"{tmp_path}/two.csv", skip_known=True)
    assert (outcome.added, len(outcome.skipped)) == (4, 3)
    now = open_dataset(f"{tmp_path}/out")
    accounts_hold(now)
    assert sorted(name for some in names(now).values() for name in some) == sorted(x.split(",")[0] for x in lines)


def test_a_new_analysis_of_images_is_refused(tmp_path):
    write_images(tmp_path, range(4))
    write(tmp_path, SCHEMA, f"{tmp_path}/raw/*/*.png")
    with pytest.raises(UsageError, match="measured while they are read"):
        run_append(AppendOptions(f"{tmp_path}/out", (f"{tmp_path}/raw/*/*.png",), reanalyze=True, quiet=True))
