"""A served model of images: no image fails another; its signatures, and the proof that it sees what training saw."""

from __future__ import annotations

import dataclasses
import io
import random
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset, layout
from schemas.errors import SkewError
from schemas.exports.model import ServedModel
from tests.support.drawn_datasets import striped
from tests.support.image_files import BMP, GIF, png
from tests.support.written_records import change_records, copy_of, example
from trainer import verify
from trainer.export.image_receivers import is_ordinary, load_ingest, map_ignoring_errors
from trainer.export.outputs import restore_estimator
from trainer.export.skew_check import check_export, check_transform, read_parity_records, stored_predictions

PIXELS = striped("lying", 1)
GRID = np.indices((50, 70)).sum(0) // 6 % 2


def jpeg(pixels: np.ndarray, **options: object) -> bytes:
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", **options)
    return out.getvalue()


def large(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 255, (height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def images(stripes):
    return stripes.image_schema.images


@pytest.fixture
def ordinary(images):
    """Which of some files take the direct way."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        files = tf.compat.v1.placeholder(tf.string, [None])
        looked_at = map_ignoring_errors(files, lambda data: is_ordinary(data, images), tf.TensorSpec([], tf.bool))
        run = session.make_callable(looked_at, [files])

        def ordinary_files(*data: bytes) -> list[bool]:
            decoded = dict(zip(*(part.tolist() for part in run(list(data))), strict=True))
            return [decoded.get(place, False) for place in range(len(data))]

        yield ordinary_files


def test_jpegs_and_pngs_of_ordinary_sizes_take_the_direct_way(ordinary):
    files = [
        jpeg(PIXELS),
        jpeg(PIXELS, progressive=True),
        jpeg(PIXELS, subsampling=0),
        jpeg(PIXELS[..., 0]),
        png(PIXELS),
        jpeg(large(600, 800)),
    ]
    assert ordinary(*files) == [True] * len(files)


@pytest.mark.slow
def test_what_takes_the_direct_way_never_fails_there(ordinary, stripes):
    """Otherwise one image would fail its whole request. Damaged files, some of which decoders accept."""
    draw = random.Random(7)
    whole = [jpeg(PIXELS), jpeg(PIXELS, progressive=True), png(PIXELS), jpeg(large(90, 70), quality=30)]
    damaged = []
    for _ in range(1500):
        changed = bytearray(draw.choice(whole))
        for _ in range(draw.choice([1, 1, 2, 20])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        damaged.append(bytes(changed[: draw.choice([len(changed), len(changed), draw.randrange(1, len(changed))])]))
    sure = [data for data, taken in zip(damaged, ordinary(*damaged), strict=True) if taken]
    assert 100 < len(sure) < 1400
    record = load_ingest(stripes).record
    for data in sure:
        record(tf.constant(data))


@pytest.fixture(scope="module")
def served(stripes_model):
    with ServedModel(str(stripes_model.export)) as model:
        yield model


@pytest.fixture(scope="module")
def files(stripes) -> list[bytes]:
    """The raw files of the dataset, all of them."""
    paths = sorted(Path(stripes.path).parent.glob("raw/*/*"))
    return [path.read_bytes() for path in paths]


@pytest.mark.long
class TestSignatures:
    @pytest.mark.parametrize(("model", "names"), [("stripes_model", ["image"]), ("patterns_model", ["left", "right"])])
    def test_raw_bytes_by_name_or_serialized_examples(self, request, model, names):
        with ServedModel(str(request.getfixturevalue(model).export)) as opened:
            assert set(opened.signatures) == {"serving_default", "examples:serving_default"}
            assert sorted(opened.signatures["serving_default"].inputs) == names
            for entry in opened.signatures.values():
                assert {info.dtype for info in entry.inputs.values()} == {tf.string.as_datatype_enum}
                fields = {"class", "class_id", "probabilities", "logits", "top_1", "top_5", "error"}
                assert set(entry.outputs) == fields

    def test_class_names_by_id(self, served, files):
        answer = served.predict({"image": files[:7]})
        names = np.array([b"checkered", b"lying", b"standing"], object)
        np.testing.assert_array_equal(answer["class"], names[answer["class_id"]])
        np.testing.assert_array_equal(answer["class_id"], answer["probabilities"].argmax(1))
        np.testing.assert_array_equal(answer["top_1"], answer["class_id"])
        assert answer["top_5"].shape == (7, 3)

    @pytest.mark.parametrize("size", [1, 100])
    def test_batches_of_any_size_give_the_same(self, served, files, size):
        whole = served.predict({"image": files})["probabilities"]
        parts = [served.predict({"image": files[i : i + size]}) for i in range(0, len(files), size)]
        np.testing.assert_allclose(np.concatenate([p["probabilities"] for p in parts]), whole, rtol=1e-4, atol=1e-6)

    def test_a_pair(self, patterns, patterns_model):
        paths = sorted(Path(patterns.path).parent.glob("raw/*/*"))
        left, right = ([path.read_bytes() for path in part] for part in (paths[:6], paths[6:12]))
        with ServedModel(str(patterns_model.export)) as model:
            by_name = model.predict({"left": left, "right": right})
            examples = [example({"left": a, "right": b}) for a, b in zip(left, right, strict=True)]
            by_example = model.predict({"examples": examples}, signature="examples:serving_default")
        assert set(by_name["class"]) <= {b"same", b"different"}
        np.testing.assert_array_equal(by_name["probabilities"], by_example["probabilities"])

    def test_any_format_and_size(self, served):
        pixels = striped("standing", 5)
        sent = [
            png(pixels),
            tf.io.encode_png(pixels).numpy(),
            tf.io.encode_jpeg(pixels).numpy(),
            png(pixels.repeat(5, axis=0).repeat(5, axis=1)),
        ]
        answer = served.predict({"image": sent})
        np.testing.assert_allclose(answer["probabilities"][0], answer["probabilities"][1], rtol=1e-4)
        assert np.isfinite(answer["probabilities"]).all()

    @pytest.mark.parametrize(
        ("broken", "reason"),
        [
            (b"", b"image: empty_file"),
            (b"this is no image", b"image: not_an_image"),
            (GIF, b"image: not_an_image"),
            (BMP, b"image: not_an_image"),
            (png(striped("lying", 1))[:400], b"image: undecodable_image"),
            (png(np.zeros((1, 1, 3), np.uint8), size=(60_000, 60_000)), b"image: undecodable_image"),
        ],
    )
    def test_a_broken_image_is_not_answered_and_fails_no_other(self, served, files, broken, reason):
        without = served.predict({"image": [files[0], files[2]]})
        answer = served.predict({"image": [files[0], broken, files[2]]})
        assert answer["error"].tolist() == [b"", reason, b""]
        assert np.isnan(answer["probabilities"][1]).all()
        assert (answer["class"][1], answer["class_id"][1]) == (b"", -1)
        for name in set(answer) - {"error"}:
            np.testing.assert_array_equal(answer[name][[0, 2]], without[name])

    def test_where_no_image_is_accepted_none_is_answered(self, served):
        answer = served.predict({"image": [b"", b"this is no image"]})
        assert answer["error"].tolist() == [b"image: empty_file", b"image: not_an_image"]
        assert np.isnan(answer["probabilities"]).all()
        assert answer["probabilities"].shape == (2, 3)
        assert answer["class"].tolist() == [b"", b""]
        assert answer["class_id"].tolist() == [-1, -1]
        assert answer["top_5"].tolist() == [[-1] * 3] * 2


@pytest.fixture
def copied(stripes, tmp_path) -> OpenDataset:
    """The dataset, to be changed."""
    return copy_of(stripes, tmp_path)


def encode_again(features):
    data = features["image/encoded"].bytes_list.value[0]
    features["image/encoded"].bytes_list.value[0] = tf.io.encode_jpeg(tf.io.decode_jpeg(data), quality=94).numpy()


def next_class(features):
    features["image/class/label"].int64_list.value[0] = (features["image/class/label"].int64_list.value[0] + 1) % 3


def other_class_name(features):
    features["image/class/text"].bytes_list.value[0] = b"dotted"


@pytest.mark.long
class TestProof:
    @pytest.mark.parametrize("data", ["colors", "patterns"])
    def test_raw_files_ingested_again_are_the_stored_ones(self, request, data):
        dataset = request.getfixturevalue(data)
        records = read_parity_records(dataset)
        assert len(records.raw) > 50
        check_transform(dataset, records)

    @pytest.mark.parametrize(
        ("change", "feature", "difference"),
        [
            (encode_again, "image/encoded", r"expected [\d,]+ bytes, SHA-256 \w+, found [\d,]+ bytes, SHA-256"),
            (next_class, "image/class/label", r"expected \d, found \d"),
            (other_class_name, "image/class/text", "expected b'dotted', found b'"),
        ],
    )
    def test_a_difference_is_named_by_record_and_key(self, copied, change, feature, difference):
        change_records(copied, layout.PARITY_TRANSFORMED, 3, change)
        with pytest.raises(SkewError, match=rf"skew: record 3, '{feature}': {difference}"):
            check_transform(copied, read_parity_records(copied))

    def test_large_files_are_fewer(self, stripes, monkeypatch):
        whole = read_parity_records(stripes)
        monkeypatch.setattr("trainer.export.skew_check.MAX_BYTES", len(whole.raw[0]) + len(whole.raw[1]))
        assert read_parity_records(stripes).raw == whole.raw[:2]
        monkeypatch.setattr("trainer.export.skew_check.MAX_BYTES", 1)
        assert read_parity_records(stripes).transformed == whole.transformed[:1]

    def test_command(self, patterns, patterns_model, capsys):
        argv = ["--data_dir", patterns.path, "--saved_model", str(patterns_model.export), "--trust"]
        capsys.readouterr()  # what the fixtures print where they are made
        assert verify.main(argv) == 0
        assert capsys.readouterr().out.startswith("no skew: ")

    def test_a_stored_image_that_differs_is_found_out_by_its_prediction(self, copied, stripes_model, tmp_path):
        def blacken(features):
            black = tf.io.encode_jpeg(np.zeros((36, 36, 3), np.uint8)).numpy()
            features["image/encoded"].bytes_list.value[0] = black

        change_records(copied, layout.PARITY_TRANSFORMED, 5, blacken)
        export, records = str(stripes_model.export), read_parity_records(copied)
        trusted = dataclasses.replace(copied, trust=True)  # model.json names a model of one's own
        estimator = restore_estimator(str(stripes_model.model_dir), trusted, scratch=str(tmp_path / "scratch"))
        with pytest.raises(SkewError, match=r"record 5, '(logits|class|probabilities)"):
            check_export(
                copied,
                records,
                export_dir=export,
                predictions=stored_predictions(copied, records, estimator),
                checkpoint_path=f"{export}/variables/variables",
            )
