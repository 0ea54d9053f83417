"""Image files as they are read: decoded, resized, and refused by the same rules wherever they are read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.images import reader as image_batches
from beam_jobs.images.facts import ANALYZED, to_analyze
from beam_jobs.images.ingest import resize, stored_and_pixels
from beam_jobs.images.reader import KEYED_RECORDS, ImageBatch, ImageReader, moments
from schemas.images.header import BadImage, check_image, read_header
from schemas.images.listing import bundles, list_folders
from schemas.spec.images import Exact, ImageOptions, ImageSplit
from tests.support.commands import FEW_ARENAS, run_program
from tests.support.image_files import GRADIENT, draw, png

RAW = ImageOptions(resize=Exact(exact=(9, 12)), store="raw", max_pixels=10_000)
ALL_TRAIN = ImageSplit(train=1.0, eval=0.0, test=0.0)


def read(
    paths: Sequence[Path],
    *,
    images: ImageOptions = RAW,
    split: ImageSplit = ALL_TRAIN,
    classes: Sequence[str] | None = None,
    threads: int | None = None,
    size: int = 256,
) -> list[ImageBatch]:
    listing = list_folders([str(p) for p in paths])
    with ImageReader(images, classes=classes or listing.classes, split=split, threads=threads) as reader:
        return [batch for bundle in bundles(listing, size) for batch in reader.read(bundle)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for i in range(20):
            (tmp_path / label / f"{i:02d}.png").write_bytes(png(rng.integers(0, 256, (20, 30, 3)).astype(np.uint8)))
    return tmp_path


def column(batch: pa.RecordBatch, name: str) -> list[object]:
    return batch.column(batch.schema.get_field_index(name)).flatten().to_pylist()


def test_records_and_moments(folder: Path) -> None:
    paths = sorted(folder.glob("*/*"))
    (batch,) = read(paths)
    assert batch.records.schema == KEYED_RECORDS
    measured = to_analyze(batch.records, batch.facts)
    assert measured.schema == ANALYZED
    assert (batch.read, batch.records.num_rows, measured.num_rows, batch.rejects) == (40, 40, 40, ())
    assert column(batch.records, "_offset") == list(range(40))
    assert column(batch.records, "image/class/label") == [0] * 20 + [1] * 20
    assert column(batch.records, "image/class/text") == [b"cat"] * 20 + [b"dog"] * 20
    assert column(batch.records, "image/filename")[0] == b"cat/00.png"
    pixels = np.frombuffer(b"".join(column(batch.records, "image/encoded")), np.uint8).astype(np.int64)  # type: ignore[arg-type]
    sums = np.array(column(measured, "image/sums")).reshape(-1, 3).sum(0)
    squares = np.array(column(measured, "image/squares")).reshape(-1, 3).sum(0)
    np.testing.assert_array_equal(sums, pixels.reshape(-1, 3).sum(0))
    np.testing.assert_array_equal(squares, (pixels.reshape(-1, 3) ** 2).sum(0))
    assert column(measured, "image/pixels") == [9 * 12] * 40


@pytest.mark.parametrize(("threads", "size"), [(1, 256), (3, 256), (2, 7)])
def test_the_same_whatever_the_threads_and_bundles(folder: Path, threads: int, size: int) -> None:
    paths = sorted(folder.glob("*/*"))
    split = ImageSplit(train=0.5, eval=0.25, test=0.25)
    (once,) = read(paths, split=split)
    batches = read(paths, split=split, threads=threads, size=size)
    assert pa.Table.from_batches([b.records for b in batches]).equals(pa.Table.from_batches([once.records]))
    measured, at_once = (
        sum(to_analyze(b.records, b.facts).num_rows for b in batch_list) for batch_list in (batches, [once])
    )
    assert measured == at_once


def test_copies_share_a_split_and_moments_come_from_train_alone(folder: Path) -> None:
    for path in folder.glob("cat/*"):
        (folder / "dog" / f"copy of {path.name}").write_bytes(path.read_bytes())
    (batch,) = read(sorted(folder.glob("*/*")), split=ImageSplit(train=0.5, eval=0.25, test=0.25))
    splits = dict(zip(column(batch.records, "image/filename"), column(batch.records, "_split"), strict=True))
    assert set(splits.values()) == {0, 1, 2}
    assert all(splits[b"cat/%02d.png" % i] == splits[b"dog/copy of %02d.png" % i] for i in range(20))
    assert to_analyze(batch.records, batch.facts).num_rows == list(splits.values()).count(0)


def test_splits_by_name_and_by_folder(folder: Path) -> None:
    paths = sorted(folder.glob("*/*"))
    by_name = ImageSplit(by="name", train=0.5, eval=0.25, test=0.25)
    (before,) = read(paths, split=by_name)
    for path in paths:
        path.write_bytes(png(np.ones((5, 5, 3), np.uint8)))
    (after,) = read(paths, split=by_name)
    assert column(before.records, "_split") == column(after.records, "_split")
    (batch,) = read(paths, split=ImageSplit(by="folder", train=0.5, eval=0.25, test=0.25))
    cats, dogs = set(column(batch.records, "_split")[:20]), set(column(batch.records, "_split")[20:])
    assert (len(cats), len(dogs)) == (1, 1)


def test_batches_are_bounded_by_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_batches, "BATCH_BYTES", 3 * 9 * 12 * 3)
    batches = read(sorted(folder.glob("*/*")))
    assert [b.records.num_rows for b in batches] == [3] * 13 + [1]


def test_each_broken_file_is_a_reject_with_reason_and_size(folder: Path) -> None:
    broken = folder / "cat"
    (broken / "a").write_bytes(b"")
    (broken / "b").write_bytes(b"some text")
    (broken / "c").write_bytes(png(GRADIENT)[:-20])
    (broken / "d").write_bytes(png(GRADIENT, size=(60_000, 60_000)))
    (broken / "e").mkdir()
    os.mkfifo(broken / "f")
    (broken / "g").symlink_to("nowhere")
    (broken / "h").write_bytes(bytes(RAW.max_file_bytes + 1))
    (broken / "i").write_bytes(png(GRADIENT).replace(b"IDAT", b"IDAX"))
    (folder / "bird").mkdir()
    (folder / "bird" / "j").write_bytes(png(GRADIENT))
    paths = sorted(folder.glob("*/?")) + sorted(folder.glob("dog/*"))
    (batch,) = read(paths, classes=("cat", "dog"))
    reasons = {(Path(r.source).name, r.stage, r.reason) for r in batch.rejects}
    assert reasons == {
        ("a", "ingest", "empty_file"),
        ("b", "ingest", "not_an_image"),
        ("c", "ingest", "truncated_image"),
        ("d", "ingest", "too_many_pixels"),
        ("e", "read", "not_a_file"),
        ("f", "read", "not_a_file"),
        ("g", "read", "unreadable_file"),
        ("h", "read", "file_too_large"),
        ("i", "ingest", "undecodable_image"),
        ("j", "label", "label_not_in_values"),
    }
    assert batch.read == len(paths) == batch.records.num_rows + len(batch.rejects)
    details = {Path(r.source).name: r.detail for r in batch.rejects}
    assert details["b"].endswith("(9 bytes)")
    assert "PNG, 12 x 16 pixels" in details["c"]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_corrupt_file_leaves_the_images_beside_it_as_they_are(folder: Path, threads: int) -> None:
    paths = sorted(folder.glob("*/*"))
    (good,) = read(paths)
    corrupt = paths[7]
    corrupt.write_bytes(corrupt.read_bytes().replace(b"IDAT", b"IDAX"))
    (batch,) = read(paths, threads=threads)
    assert [(r.source, r.reason) for r in batch.rejects] == [(str(corrupt), "undecodable_image")]
    expected = pa.Table.from_batches([good.records.slice(0, 7), good.records.slice(8)])
    assert pa.Table.from_batches([batch.records]).combine_chunks().equals(expected.combine_chunks())


def test_moments_are_exact_at_their_largest() -> None:
    white = np.full((2**14, 3, 3), 255, np.uint8)
    np.testing.assert_array_equal(moments(white), [[255 * 3 * 2**14] * 3, [255**2 * 3 * 2**14] * 3])


STORED = [
    "DERIVED_png_named.jpg",
    "hopper.png",
    "hopper_gray.jpg",
    "hopper_orientation_3.jpg",
    "hopper_orientation_6.jpg",
    "hopper_orientation_7.jpg",
    "icc_profile_big.jpg",
    "invalid-exif.jpg",
    "pil_sample_cmyk.jpg",
    "png_decompression_dos.png",
    "sugarshack.mpo",
    "uncompressed_la.png",
]
REFUSED = {
    "DERIVED_zero_byte.jpg": "empty_file",
    "badbitcount.bmp": "unsupported_format",
    "baddens2.bmp": "unsupported_format",
    "badheadersize.bmp": "unsupported_format",
    "badplanes.bmp": "unsupported_format",
    "badwidth.bmp": "unsupported_format",
    "decompression_bomb.gif": "unsupported_format",
    "hopper.bmp": "unsupported_format",
    "hopper.gif": "unsupported_format",
    "hopper.webp": "unsupported_format",
    "imageNotFound.gif": "unsupported_format",
    "pal8badindex.bmp": "unsupported_format",
    "reallybig.bmp": "unsupported_format",
    "shortfile.bmp": "unsupported_format",
    "truncated_image.png": "truncated_image",
    "truncated_jpeg.jpg": "truncated_image",
    "ultrahdr.jpg": "truncated_image",
}
NASTY = r"""
import json, re, sys
from pathlib import Path
import numpy as np
from beam_jobs.images.reader import ImageReader
from schemas.images.listing import bundles, list_folders
from schemas.spec.images import ImageOptions, ImageSplit, Shorter
folder, bomb = Path(sys.argv[1]), Path(sys.argv[2])
from tests.support.image_files import png
bomb.mkdir()
for i in range(4):  # as large as is allowed: 100 MB decoded, each
    (bomb / f"{i}.png").write_bytes(png(np.zeros((5792, 5792, 3), np.uint8)))
(bomb / "1.2 GB.png").write_bytes(png(np.zeros((1, 1, 3), np.uint8), size=(20_000, 20_000)))
paths = sorted(str(p) for p in [*folder.iterdir(), *bomb.iterdir()] if p.suffix != ".json")
listing = list_folders(paths)
images = ImageOptions(resize=Shorter(shorter=256), crop=(227, 227))
with ImageReader(images, classes=listing.classes, split=ImageSplit(), threads=4) as reader:
    (batch,) = reader.read(next(bundles(listing)))
names = batch.records.column(6).flatten().to_pylist()
print(json.dumps({
    "stored": [n.decode() for n in names],
    "rejected": {r.source: r.reason for r in batch.rejects},
    # Not getrusage's ru_maxrss, which a new process inherits from the one that started it.
    "peak": int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024,
}))
"""


@pytest.mark.slow
def test_nasty_images_are_stored_or_rejected_and_cost_no_memory(real_data: Path, tmp_path: Path) -> None:
    folder = real_data / "nasty_images"
    assert set(json.loads((folder / "MANIFEST.json").read_text())) == {*STORED, *REFUSED}
    done = run_program(NASTY, folder, tmp_path / "bombs", env=FEW_ARENAS)
    result = json.loads(done.stdout.splitlines()[-1])
    assert {n for n in result["stored"] if n.startswith("nasty")} == {f"nasty_images/{name}" for name in STORED}
    reasons = {Path(source).name: reason for source, reason in result["rejected"].items()}
    assert reasons == {**REFUSED, "1.2 GB.png": "too_many_pixels"}
    assert len(result["stored"]) == len(STORED) + 4
    assert result["peak"] < 1.5e9


RESIZE = tf.function(
    resize, input_signature=[tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([2], tf.int32)], autograph=False
)
SIDES = st.one_of(st.integers(1, 20), st.integers(1, 400), st.just(1), st.just(2000))


@settings(max_examples=60)
@given(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES), st.booleans(), st.integers(0, 2**32 - 1))
def test_pixels_are_those_of_tensorflows_own_resize(
    old: tuple[int, int], new: tuple[int, int], extreme: bool, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (*old, 3)).astype(np.uint8)
    if extreme:
        pixels = np.where(pixels < 128, 0, 255).astype(np.uint8)
    expected = tf.cast(tf.round(tf.image.resize(pixels, new, antialias=True)), tf.uint8)
    np.testing.assert_array_equal(RESIZE(pixels, new), expected)


IMAGES = ImageOptions(resize=Exact(exact=(24, 32)))
JUNK = (
    b"\0",
    b"junk",
    b"\xff",
    b"\xff\xff\xff",
    b"\xff\0",
    b"\xff\0" * 1000,
    bytes(range(255)) * 400,
)  # the last: 100 KB without a 0xff


def segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Place and marker of each segment up to the first scan's."""
    place = 2
    while True:
        yield place, data[place + 1]
        if data[place + 1] == 0xDA:
            return
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")


def drawn(**options: object) -> bytes:
    out = io.BytesIO()
    PIL.Image.fromarray(draw(0, 1, height=40, width=56)).save(out, "JPEG", comment=b"a comment", **options)
    return out.getvalue()


def jpegs(real_data: Path) -> Iterator[bytes]:
    yield drawn()
    yield drawn(progressive=True)
    for folder in ("cats", "dogs"):
        yield from (path.read_bytes() for path in sorted((real_data / "images" / folder).glob("*.jpg"))[:2])
    yield (real_data / "nasty_images" / "hopper_orientation_6.jpg").read_bytes()


@pytest.mark.slow
def test_it_is_read_as_if_it_were_not_there(real_data: Path) -> None:
    ingest = stored_and_pixels(IMAGES, "jpeg")
    inserted = 0
    for data in jpegs(real_data):
        header = check_image(data, IMAGES)
        stored, pixels = ingest(np.array(data, object))
        for place, _ in list(segments(data))[1:]:
            for junk in JUNK:
                damaged = data[:place] + junk + data[place:]
                assert check_image(damaged, IMAGES) == header
                again, same = ingest(np.array(damaged, object))
                assert np.array_equal(same, pixels)
                assert again == stored
                with PIL.Image.open(io.BytesIO(damaged)) as opened:
                    opened.load()
                    assert opened.size == (header.width, header.height)
                inserted += 1
    assert inserted > 200


@pytest.mark.parametrize("rest", [b"", b"\0" * 10_000_000, b"\xff" * 10_000_000, b"\xff\0" * 5_000_000])
def test_without_another_marker_it_ends_early(rest: bytes) -> None:
    """Searched in one go, whatever its length."""
    with pytest.raises(BadImage, match="truncated_image"):
        read_header(b"\xff\xd8\xff\xfe\0\x02" + rest)
