"""The job and `trainer.predict` reject an image file for the same reason, in the same words."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from beam_jobs.images.reader import ImageReader
from schemas.images.listing import bundles, list_folders
from schemas.rejects import Reject
from schemas.spec.images import ImageOptions, ImageSplit
from tests.support.drawn_datasets import striped
from tests.support.image_bytes import gif, png
from trainer import predict

GOOD = png(striped("lying", 1))
LABEL = "lying"


def nasty_files(folder: Path, images: ImageOptions) -> None:
    """Good files and bad ones, in a folder whose name is their label."""
    files = {
        b"good.png": GOOD,
        b"empty.jpg": b"",
        b"text.jpg": b"this is no image",
        b"webp.png": b"RIFF\0\0\0\0WEBP",
        b"cut.png": GOOD[:400],
        b"cut header.png": GOOD[:14],
        b"cut.gif": gif([striped("lying", 1)[..., 0]])[:200],
        b"bomb.png": png(striped("lying", 1)[:1, :1], size=(60_000, 60_000)),
        b"needle.png": png(striped("lying", 1)[:1, :1], size=(1, 100_000)),
        b"flipped.png": GOOD[:300] + bytes([GOOD[300] ^ 8]) + GOOD[301:],
        b"jpeg.jpg": b"\xff\xd8\xff\xe0\0\2junk\xff\xd9",
        b"a\nname.png": GOOD,
        b"a\x7fname.png": b"",
        b"no \xff text.png": GOOD,
        "Grüße, %s.png".encode(): GOOD,
    }
    for name, data in files.items():
        (folder / os.fsdecode(name)).write_bytes(data)
    with open(folder / "large.png", "wb") as file:
        file.truncate(images.max_file_bytes + 1)
    os.mkfifo(folder / "pipe.png")
    (folder / "gone.png").symlink_to("nowhere")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "device.png").symlink_to("/dev/zero")


def by_the_job(paths: list[str], images: ImageOptions) -> tuple[int, list[Reject]]:
    listing = list_folders(paths)
    split = ImageSplit(train=1.0, eval=0.0, test=0.0)
    with ImageReader(images, classes=(LABEL, "other"), split=split) as reader:
        batches = [batch for bundle in bundles(listing) for batch in reader.read(bundle)]
    rejects = [reject for batch in batches for reject in batch.rejects]
    return sum(batch.records.num_rows for batch in batches), [*listing.rejects, *rejects]


def by_predict(paths: list[str], export: Path, out: Path) -> tuple[int, list[Reject]]:
    argv = ["--saved_model", str(export), "--output", str(out / "p.jsonl"), "--max_rejects", "1000"]
    assert predict.main([*argv, "--quiet", "--input", *paths]) == 0
    rejects = [Reject.from_json(line) for line in (out / "p.rejects.jsonl").read_text().splitlines()]
    return len((out / "p.jsonl").read_text().splitlines()), rejects


def told(rejects: list[Reject]) -> dict[str, tuple[str, str, str | None, str, bytes]]:
    return {r.source: (r.stage, r.reason, r.column, r.detail, r.raw) for r in rejects}


def check_both(stripes, stripes_model, folder: Path, out: Path) -> set[str]:
    """Every file is taken by the job and by predict, or refused by both in the same words. Returns the reasons."""
    paths = sorted(str(path) for path in folder.iterdir())
    stored, refused = by_the_job(paths, stripes.image_schema.images)
    predicted, refused_too = by_predict(paths, stripes_model.export, out)
    assert told(refused_too) == told(refused)
    assert predicted == stored
    assert stored + len(refused) == len(paths)
    return {reject.reason for reject in refused}


def test_nasty_files_are_refused_by_both_in_the_same_words(stripes, stripes_model, tmp_path):
    folder = tmp_path / "photos" / LABEL
    folder.mkdir(parents=True)
    nasty_files(folder, stripes.image_schema.images)
    assert check_both(stripes, stripes_model, folder, tmp_path) == {
        "empty_file",
        "not_an_image",
        "unsupported_format",
        "truncated_image",
        "too_many_pixels",
        "too_elongated",
        "undecodable_image",
        "bad_header",
        "bad_name",
        "file_too_large",
        "not_a_file",
        "unreadable_file",
    }


def test_nasty_images_of_the_real_data_are_too(stripes, stripes_model, tmp_path, real_data):
    folder = tmp_path / "photos" / LABEL
    shutil.copytree(real_data / "nasty_images", folder)
    check_both(stripes, stripes_model, folder, tmp_path)
