"""The ingest graph: every format to the same canonical pixels, wherever the graph runs, and an error for the rest."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from beam_jobs.images.ingest import Ingest, new_ingest, save_ingest, saved_ingest, scaled_jpeg, stored_and_pixels
from schemas.images.header import JPEG_SCANS, BadImage, check_image, decoding_ratio
from schemas.spec.images import Exact, ImageOptions, Shorter
from tests.support.image_files import BMP, GIF, GRADIENT, png

SIZE = GRADIENT.shape[:2]
KEPT = ImageOptions(resize=Exact(exact=SIZE), store="raw", max_pixels=10_000)
SMALL = ImageOptions(resize=Shorter(shorter=8), crop=(8, 8), max_pixels=10_000)
ALPHA = np.concatenate([GRADIENT, np.full((*SIZE, 1), 7, np.uint8)], axis=2)
GRAY = np.repeat(GRADIENT[:, :, :1], 3, axis=2)
INDICES = (np.add.outer(np.arange(SIZE[0]), np.arange(SIZE[1])) % 4).astype(np.uint8)
COLORS = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)


def jpeg(picture: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=92, **options)
    return file.getvalue()


PROGRESSIVE = jpeg(Image.fromarray(GRADIENT), progressive=True)


@pytest.fixture(scope="module")
def ingest() -> Ingest:
    return Ingest(KEPT)


@pytest.fixture(scope="module")
def small() -> Ingest:
    return Ingest(SMALL)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(png(GRADIENT), GRADIENT, id="png"),
        pytest.param(png(ALPHA, color_type=6), GRADIENT, id="png with alpha"),
        pytest.param(png(GRADIENT[:, :, :1], color_type=0), GRAY, id="gray png"),
        pytest.param(png(ALPHA[:, :, ::3], color_type=4), GRAY, id="gray png with alpha"),
        pytest.param(png(GRADIENT.astype(np.uint16) * 256 + 9), GRADIENT, id="16-bit png"),
        pytest.param(
            png(INDICES[:, :, None], color_type=3, palette=COLORS.tobytes()), COLORS[INDICES], id="palette png"
        ),
        pytest.param(tf.io.encode_png(GRADIENT).numpy(), GRADIENT, id="png of another writer"),
    ],
)
def test_every_format_to_the_same_pixels(ingest: Ingest, data: bytes, expected: np.ndarray) -> None:
    file_format = check_image(data, KEPT).format
    np.testing.assert_array_equal(ingest.image(data).numpy(), expected)
    np.testing.assert_array_equal(stored_and_pixels(KEPT, file_format)(np.array(data, object))[1], expected)
    record = ingest.record(data)
    assert record["image/encoded"].numpy() == expected.astype(np.uint8).tobytes()
    assert record["image/format"].numpy() == b"RAW"
    assert (record["image/height"].numpy(), record["image/width"].numpy()) == SIZE


def test_a_jpeg_in_gray_and_in_colour(ingest: Ingest) -> None:
    smooth = np.add.outer(5 * np.arange(12), np.array([60, 90, 120]) + 3 * np.arange(16)[:, None]).astype(np.uint8)
    np.testing.assert_allclose(ingest.image(tf.io.encode_jpeg(smooth, quality=100)), smooth, atol=12)
    np.testing.assert_allclose(ingest.image(tf.io.encode_jpeg(GRADIENT[:, :, :1], quality=100)), GRAY, atol=3)


@pytest.mark.slow
def test_what_is_stored_is_a_jpeg_of_the_given_quality() -> None:
    sizes = []
    for quality in (50, 95):
        options = SMALL.model_copy(update={"quality": quality})
        ingest = Ingest(options)
        record = ingest.record(png(GRADIENT))
        stored = tf.io.decode_jpeg(record["image/encoded"])
        assert stored.shape == (record["image/height"].numpy(), record["image/width"].numpy(), 3)
        sizes.append(len(record["image/encoded"].numpy()))
        encoded, pixels = stored_and_pixels(options, "png")(np.array(png(GRADIENT), object))
        assert encoded == record["image/encoded"].numpy()
        np.testing.assert_array_equal(pixels, ingest.image(png(GRADIENT)))
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 30), (40, 13), (3, 4), (1, 1), (21, 20)])
def test_images_are_resized_to_the_size_that_the_options_tell(small: Ingest, height: int, width: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)
    size = SMALL.resize.size(height, width)
    expected = tf.round(tf.image.resize(pixels, size, antialias=True))
    np.testing.assert_array_equal(small.image(png(pixels)), expected)


def soft_picture(height: int, width: int, mode: str) -> Image.Image:
    """A picture as soft as a photo: noise of several scales, each smoothed."""
    random = np.random.default_rng(1)
    picture = np.full((height, width, 3), 128.0)
    for cell in (16, 48, 160):
        noise = random.normal(0, 30, (height // cell + 2, width // cell + 2, 3)).clip(-60, 60) + 128
        coarse = Image.fromarray(noise.clip(0, 255).astype(np.uint8))
        picture += np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), float) - 128
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8)).convert(mode)


def decibels(image: np.ndarray, other: np.ndarray) -> float:
    """The peak signal-to-noise ratio of 8-bit images."""
    return float(10 * np.log10(255**2 / np.mean((image.astype(float) - other) ** 2)))


class TestLargeJpegs:
    """They are decoded at a scale, and are still the picture that another decoder and another resizer see."""

    @pytest.mark.parametrize("side", [48, 12])  # of 203 x 301: decoded at 1/2 and 1/8
    @pytest.mark.parametrize(
        ("mode", "options"),
        [("RGB", {}), ("RGB", {"progressive": True}), ("RGB", {"subsampling": 0}), ("L", {}), ("CMYK", {})],
        ids=["baseline", "progressive", "4:4:4", "gray", "cmyk"],
    )
    def test_beside_pillow(self, mode: str, options: dict[str, Any], side: int) -> None:
        data = jpeg(soft_picture(203, 301, mode), **options)
        for downscale, least in ((2, 40), (1, 33)):
            images = ImageOptions(resize=Exact(exact=(side, side)), store="raw", downscale=downscale)
            ratio = decoding_ratio(check_image(data, images), images)
            assert ratio == min({48: 2, 12: 8}[side] * 2 // downscale, 8)
            expected = Image.open(io.BytesIO(data)).convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
            pixels = Ingest(images).image(tf.constant(data)).numpy()
            assert decibels(pixels, np.asarray(expected)) > least

    @pytest.mark.parametrize("downscale", [1, 2, 3])
    @pytest.mark.parametrize(("height", "width"), [(64, 64), (63, 64), (127, 129), (500, 63)])
    def test_the_scale_is_that_of_the_header(self, height: int, width: int, downscale: int) -> None:
        data = jpeg(soft_picture(height, width, "RGB"))
        images = ImageOptions(resize=Exact(exact=(8, 8)), downscale=downscale)
        ratio = decoding_ratio(check_image(data, images), images)
        sides, to = tf.constant([height, width]), tf.constant([8, 8])
        image, size, extent = scaled_jpeg(tf.constant(data), sides, to, downscale)
        assert size.numpy().tolist() == [8, 8]
        assert extent.numpy().tolist() == [height / ratio, width / ratio]
        assert image.shape == (-(-height // ratio), -(-width // ratio), 3)

    @pytest.mark.parametrize("height", [192, 193, 199, 208])
    def test_the_size_is_that_of_the_whole_image(self, height: int) -> None:
        data = jpeg(soft_picture(height, 333, "RGB"))
        images = ImageOptions(resize=Shorter(shorter=11), crop=(8, 8))
        encoded, pixels = stored_and_pixels(images, "jpeg")(np.array(data, object))
        assert pixels.shape[:2] == images.resize.size(height, 333)
        assert Image.open(io.BytesIO(encoded)).size == pixels.shape[1::-1]


@pytest.mark.parametrize("downscale", [1, 2])
def test_a_saved_graph_stores_as_a_new_one(tmp_path: Path, downscale: int) -> None:
    data = jpeg(soft_picture(203, 301, "RGB"))
    images = ImageOptions(resize=Exact(exact=(30, 30)), store="raw", downscale=downscale)
    save_ingest(images, str(tmp_path / "saved"))
    assert saved_ingest(str(tmp_path / "saved"))(data, "jpeg")[:3] == new_ingest(images)(data, "jpeg")[:3]


REFUSED = [
    (b"", "not_an_image"),
    (b"hello, world", "not_an_image"),
    (GIF, "not_an_image"),
    (BMP, "not_an_image"),
    (b"\xff\xd8\xff", ""),
    (png(GRADIENT, size=(101, 100)), "too_many_pixels"),
    (png(GRADIENT, size=(2**31 + 5, 2**31 + 5)), "too_many_pixels"),
    (png(GRADIENT, size=(1, 9_999)), "too_elongated"),
    (tf.io.encode_jpeg(GRADIENT).numpy().replace(struct.pack(">HH", *SIZE), b"\xc3\x50\xc3\x50"), "too_many_pixels"),
    (tf.io.encode_jpeg(GRADIENT).numpy()[:-20], ""),
    (PROGRESSIVE + b"\xff\xda" * JPEG_SCANS, "too_many_scans"),
    (png(GRADIENT)[:-20], ""),
]


@pytest.mark.parametrize(("data", "reason"), REFUSED)
def test_the_graph_has_the_limits_of_the_header(small: Ingest, data: bytes, reason: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        small.image(data)
    assert reason in caught.value.message
    try:
        check_image(data, SMALL)
    except BadImage as bad:
        assert bad.reason in (reason or bad.reason, "empty_file", "unsupported_format")  # noqa: PT017 - the header may let pass what a decoder finds
    else:
        assert not reason


def test_the_graph_and_the_header_take_as_many_scans(ingest: Ingest) -> None:
    most = PROGRESSIVE + b"\xff\xda" * (JPEG_SCANS - PROGRESSIVE.count(b"\xff\xda"))
    check_image(most, KEPT)
    np.testing.assert_array_equal(ingest.image(most), ingest.image(PROGRESSIVE))


@pytest.mark.parametrize("data", [png(GRADIENT), tf.io.encode_jpeg(GRADIENT).numpy()])
def test_a_file_cut_anywhere_is_an_error_or_the_whole_image(ingest: Ingest, data: bytes) -> None:
    whole = ingest.image(data).numpy()
    for end in range(0, len(data), 7):
        try:
            np.testing.assert_array_equal(ingest.image(data[:end]), whole)
        except tf.errors.InvalidArgumentError:
            continue


@pytest.mark.slow
def test_the_saved_graph_takes_batches_single_images_and_graph_mode(small: Ingest, tmp_path: Path) -> None:
    save_ingest(SMALL, str(tmp_path / "ingest_fn"))
    files = [png(GRADIENT), png(GRADIENT[:, :, :1], color_type=0), tf.io.encode_jpeg(GRADIENT[:9]).numpy()]
    expected = [small.record(data)["image/encoded"].numpy() for data in files]

    loaded = tf.saved_model.load(str(tmp_path / "ingest_fn"))
    batch = loaded.signatures["serving_default"](image_bytes=tf.constant(files))
    assert batch["image/encoded"].numpy().tolist() == expected
    assert batch["image/height"].numpy().tolist() == [
        SMALL.resize.size(*size)[0] for size in (SIZE, SIZE, (9, SIZE[1]))
    ]
    assert loaded.signatures["serving_default"](image_bytes=tf.constant([], tf.string))["image/encoded"].shape == (0,)
    assert loaded.record(files[1])["image/encoded"].numpy() == expected[1]
    dataset = tf.data.Dataset.from_tensor_slices(files).map(loaded.record)
    assert [row["image/encoded"] for row in dataset.as_numpy_iterator()] == expected

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inside = tf.saved_model.load(str(tmp_path / "ingest_fn"))
        outputs = inside.signatures["serving_default"](image_bytes=tf.constant(files))
        assert session.run(outputs["image/encoded"]).tolist() == expected


def test_an_adobe_cmyk_jpeg_has_the_colours_of_a_viewer(real_data: Path) -> None:
    data = (real_data / "nasty_images" / "pil_sample_cmyk.jpg").read_bytes()
    pixels = Ingest(ImageOptions(resize=Exact(exact=(100, 100)))).image(data).numpy()
    np.testing.assert_allclose(pixels.mean((0, 1)), [30.2, 5.4, 7.4], atol=1.0)  # Pillow 12, convert("RGB")
