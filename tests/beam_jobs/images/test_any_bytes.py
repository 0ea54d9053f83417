"""Whatever the bytes of an image file are: the job stores it or rejects it, a served graph takes or refuses it."""

from __future__ import annotations

import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.images.ingest import Ingest
from beam_jobs.images.reader import ImageReader
from schemas.images.listing import bundles, list_folders
from schemas.spec.images import Exact, ImageOptions, ImageSplit, Shorter
from tests.support.commands import FEW_ARENAS, run_program
from tests.support.image_files import BMP, GIF, GRADIENT, jpeg_header, png

HANG_SECONDS = 1800  # the bombs take some seconds each; one whose limit does not hold, hours
INDICES = (np.add.outer(np.arange(12), np.arange(16)) % 4).astype(np.uint8)
PALETTE = bytes(range(16))
PROGRESSIVE = tf.io.encode_jpeg(GRADIENT, progressive=True).numpy()
WHOLE = [
    png(GRADIENT),
    png(GRADIENT[:, :, :1], color_type=0),
    png(INDICES[:, :, None], color_type=3, palette=PALETTE[:12]),
    png(GRADIENT.astype(np.uint16) * 257),
    GIF,
    BMP,
    tf.io.encode_jpeg(GRADIENT).numpy(),
    tf.io.encode_jpeg(GRADIENT[:, :, :1]).numpy(),
    PROGRESSIVE,
    jpeg_header(12, 16),
]
EXACT = ImageOptions(resize=Exact(exact=(9, 12)), store="raw", max_pixels=10_000)
SHORTER = ImageOptions(resize=Shorter(shorter=8), crop=(8, 8), max_pixels=10_000)

SIGNS = [b"\xff\xd8\xff", b"\xff\xda", b"\xff\xd9", b"\xff\xc2", b"\xff\xdd", b"IHDR", b"PLTE", b"IDAT", b"IEND", b"BM"]
SIGNS += [b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff"]
PLACE = st.floats(0, 1)
CHANGE = st.one_of(
    st.tuples(st.just("set"), PLACE, st.binary(min_size=1, max_size=4) | st.sampled_from(SIGNS)),
    st.tuples(st.just("insert"), PLACE, st.binary(max_size=12) | st.sampled_from(SIGNS)),
    st.tuples(st.just("cut"), PLACE, st.just(b"")),
    st.tuples(st.just("drop"), PLACE, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("graft"), PLACE, st.sampled_from(WHOLE)),
)


def changed(data: bytes, changes: list[tuple[str, float, bytes]], *, sealed: bool) -> bytes:
    """A file with some of its bytes changed; `sealed`: with a PNG's checksums made right again."""
    for kind, share, piece in changes:
        i = int(share * len(data))
        match kind:
            case "set":
                data = data[:i] + piece + data[i + len(piece) :]
            case "insert":
                data = data[:i] + piece + data[i:]
            case "cut":
                data = data[:i]
            case "drop":
                data = data[:i] + data[i + len(piece) :]
            case _:
                data = data[:i] + piece[i:]
    return with_checksums(data) if sealed and data.startswith(b"\x89PNG") else data


def with_checksums(data: bytes) -> bytes:
    """A PNG whose chunks pass their checks, so that what they say reaches the decoder."""
    out, place = bytearray(data), 8
    while place + 12 <= len(out):
        (size,) = struct.unpack_from(">I", out, place)
        if place + 12 + size > len(out):
            break
        struct.pack_into(">I", out, place + 8 + size, zlib.crc32(out[place + 4 : place + 8 + size]))
        place += 12 + size
    return bytes(out)


FILES = st.one_of(
    st.builds(changed, st.sampled_from(WHOLE), st.lists(CHANGE, max_size=6), sealed=st.booleans()),
    st.binary(max_size=200),
    st.builds(lambda magic, rest: magic + rest, st.sampled_from(SIGNS), st.binary(max_size=120)),
)


@pytest.fixture(scope="module", params=[EXACT, SHORTER], ids=["exact", "shorter"])
def images(request: pytest.FixtureRequest) -> ImageOptions:
    return request.param


@pytest.fixture(scope="module")
def ingest(images: ImageOptions) -> Ingest:
    return Ingest(images)


@pytest.fixture(scope="module")
def reader(images: ImageOptions):
    with ImageReader(images, classes=("cat",), split=ImageSplit(), threads=2) as reader:
        yield reader


def ingested(files: list[bytes], reader: ImageReader) -> tuple[dict[int, tuple[bytes, int, int]], dict[int, str]]:
    """By their places: what is stored of the files with its height and width, and why the others are not."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cat").mkdir()
        paths = [str(Path(folder) / "cat" / f"{i:03d}") for i in range(len(files))]
        for path, data in zip(paths, files, strict=True):
            Path(path).write_bytes(data)
        batches = [b for bundle in bundles(list_folders(paths)) for b in reader.read(bundle)]
    stored: dict[int, tuple[bytes, int, int]] = {}
    rejected: dict[int, str] = {}
    for batch in batches:
        assert batch.read == batch.records.num_rows + len(batch.rejects)
        columns = {name: batch.records.column(name).flatten().to_pylist() for name in batch.records.schema.names}
        rows = (columns[f"image/{name}"] for name in ("encoded", "height", "width"))
        stored |= dict(zip(columns["_offset"], zip(*rows, strict=True), strict=True))
        rejected |= {int(Path(r.source).name): r.reason for r in batch.rejects}
    assert sorted([*stored, *rejected]) == list(range(len(files)))
    return stored, rejected


@pytest.mark.slow
@settings(max_examples=30, derandomize=True)
@given(files=st.lists(FILES, min_size=1, max_size=12))
def test_every_file_is_stored_or_rejected_and_served_alike(
    files: list[bytes], images: ImageOptions, reader: ImageReader, ingest: Ingest
) -> None:
    stored, rejected = ingested(files, reader)
    for place, data in enumerate(files):
        try:
            served = ingest.batch(tf.constant([data]))
        except tf.errors.InvalidArgumentError:
            assert place in rejected
            continue
        except UnicodeDecodeError:  # an InvalidArgument whose message holds the file's bytes, which Python cannot show
            assert place in rejected
            continue
        sizes = (int(served["image/height"][0]), int(served["image/width"][0]))
        if place in stored:
            assert stored[place] == (served["image/encoded"][0].numpy(), *sizes)
        assert sizes[0] * sizes[1] <= images.max_pixels


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunks(*chunks: bytes) -> bytes:
    """A good PNG with more chunks behind its header."""
    whole = png(GRADIENT)
    return whole[:33] + b"".join(chunks) + whole[33:]


ZEROS = zlib.compress(bytes(100 << 20), 9)  # 100 MB of memory in 100 kB
LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
LARGE = tf.io.encode_jpeg(np.zeros((3000, 3000, 3), np.uint8), progressive=True).numpy()
BOMBS = {
    "png of 2^31 pixels a side": png(GRADIENT, size=(2**31 - 1, 2**31 - 1)),
    "png whose text explodes": with_chunks(*[chunk(b"zTXt", b"a\0\0" + ZEROS)] * 20),
    "png whose profile explodes": with_chunks(chunk(b"iCCP", b"a\0\0" + ZEROS)),
    "png of a hundred thousand chunks": with_chunks(*[chunk(b"tEXt", b"a\0b")] * 100_000),
    "png with more pixels than it says": png(np.zeros((4000, 4000, 3), np.uint8), size=(12, 16)),
    "jpeg of 65,535 pixels a side": jpeg_header(65_535, 65_535),
    "jpeg of 10,000 scans": PROGRESSIVE[:-2] + LAST_SCAN * 10_000 + b"\xff\xd9",
    "large jpeg of 2,000 scans": LARGE[:-2] + LARGE[LARGE.rindex(b"\xff\xda") : -2][:40] * 2000 + b"\xff\xd9",
    "jpeg of fill bytes": b"\xff\xd8" + b"\xff" * (16 << 20),
    "jpeg of empty segments": b"\xff\xd8" + b"\xff\xe1\0\2" * 1_000_000,
}
MEASURE = """
import re, sys
from pathlib import Path
import tensorflow as tf
from beam_jobs.images.reader import ImageReader
from beam_jobs.images.ingest import Ingest
from schemas.images.listing import bundles, list_folders
from schemas.spec.images import ImageOptions, ImageSplit, Shorter

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

images = ImageOptions(resize=Shorter(shorter=8), crop=(8, 8), max_pixels=10**7)
ingest = Ingest(images)
ingest.batch(tf.constant([Path(sys.argv[1], "good").read_bytes()]))
before = peak()
paths = sorted(str(p) for p in Path(sys.argv[1]).iterdir())
with ImageReader(images, classes=("cat",), split=ImageSplit(), threads=2) as reader:
    for path in paths:
        outcome = "".join(r.reason for b in bundles(list_folders([path])) for x in reader.read(b) for r in x.rejects)
        data = tf.constant([Path(path).read_bytes()])
        try:
            ingest.batch(data)
            served = ""
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
            served = "refused"
        print(Path(path).name, outcome, served, sep="|")
print(peak() - before)
"""


@pytest.mark.slow
def test_bombs_cost_little_time_and_memory(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for name, data in {"good": png(GRADIENT), **BOMBS}.items():
        (tmp_path / "cat" / name).write_bytes(data)
    done = run_program(MEASURE, tmp_path / "cat", timeout=HANG_SECONDS, env=FEW_ARENAS)
    *lines, megabytes = [line for line in done.stdout.splitlines() if "|" in line or line.isdigit()]
    outcomes = {name: (reason, served) for name, reason, served in (x.split("|") for x in lines)}
    assert set(outcomes) == {"good", *BOMBS}
    assert outcomes["good"] == ("", "")
    assert {name for name, (reason, served) in outcomes.items() if not reason and served} == set()
    assert int(megabytes) < 700
