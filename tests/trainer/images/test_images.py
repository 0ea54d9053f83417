"""What training, evaluation and prediction read of images, and what an evaluation of images tells of them."""

from __future__ import annotations

import collections
import dataclasses
import io
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from PIL import Image

from schemas.dataset import OpenDataset
from schemas.errors import UsageError
from trainer.data.input_fn import input_fn, is_held
from trainer.data.input_options import InputOptions, input_options
from trainer.estimator import tf_estimator
from trainer.images import augment, inputs
from trainer.images.augment import (
    AugmentOptions,
    augment_jpeg,
    augment_raw,
    crop_window,
    resized_crop_window,
)
from trainer.images.inputs import normalized
from trainer.loop.plan import plan_training
from trainer.spec.hparams import Augmentation, augmentation
from trainer.spec.options import TrainOptions

TRAIN, EVAL, PREDICT = (getattr(tf_estimator.ModeKeys, name) for name in ("TRAIN", "EVAL", "PREDICT"))
SMALL = InputOptions(batch_size=16, num_epochs=1, seed=3)
PLAIN = dataclasses.replace(SMALL, augmentation=Augmentation(flip=False))


def read(dataset: OpenDataset, mode: str, options: InputOptions = SMALL, config=None) -> tuple[dict, np.ndarray]:
    """A pass over the train split: each feature's images and the labels, batches joined."""
    batches = list(input_fn(dataset, "train", mode=mode, options=options, config=config))
    features = {name: np.concatenate([f[name] for f, _ in batches]) for name in batches[0][0]}
    return features, np.concatenate([label for _, label in batches])


def stored(dataset: OpenDataset) -> list[np.ndarray]:
    """The train split's stored images, uncropped, in the order of the shards."""
    images = []
    for record in tf.data.TFRecordDataset(list(dataset.shards("train"))):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        data = feature["image/encoded"].bytes_list.value[0]
        sides = [feature[f"image/{side}"].int64_list.value[0] for side in ("height", "width")]
        if feature["image/format"].bytes_list.value[0] == b"RAW":
            images.append(np.frombuffer(data, np.uint8).reshape(*sides, 3))
        else:
            images.append(tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy())
            assert list(images[-1].shape[:2]) == sides
    return images


def centre(image: np.ndarray) -> np.ndarray:
    top, left = (image.shape[0] - 32) // 2, (image.shape[1] - 32) // 2
    return image[top : top + 32, left : left + 32]


def crops(image: np.ndarray) -> set[bytes]:
    """All that a random crop can give."""
    places = np.ndindex(image.shape[0] - 31, image.shape[1] - 31)
    return {image[top : top + 32, left : left + 32].tobytes() for top, left in places}


class TestWhatIsRead:
    @pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
    @pytest.mark.parametrize(
        ("data", "names"), [("colors", {"image"}), ("stripes", {"image"}), ("patterns", {"left", "right"})]
    )
    def test_images_by_name_and_the_label(self, request, data, names, mode):
        read_them = input_fn(request.getfixturevalue(data), "train", mode=mode, options=SMALL)
        features, label = read_them.element_spec
        assert {name: (spec.dtype, spec.shape[1:]) for name, spec in features.items()} == dict.fromkeys(
            names, (tf.uint8, [32, 32, 3])
        )
        assert (label.dtype, label.shape.rank) == (tf.int64, 1)

    @pytest.mark.parametrize("mode", [EVAL, PREDICT])
    @pytest.mark.parametrize("data", ["colors", "stripes"])
    def test_evaluation_sees_the_centre_of_each_in_order(self, request, data, mode):
        dataset = request.getfixturevalue(data)
        augmentation = Augmentation(color_jitter=0.3, resized_crop=0.3)  # which is for training alone
        features, _ = read(dataset, mode, dataclasses.replace(SMALL, augmentation=augmentation))
        np.testing.assert_array_equal(features["image"], [centre(image) for image in stored(dataset)])


@pytest.fixture(params=[0, InputOptions.cache_bytes], ids=["streamed", "held"])
def plain(request) -> InputOptions:
    """Training decodes crops of the shards' images in each epoch, or crops decoded images in memory."""
    return dataclasses.replace(PLAIN, cache_bytes=request.param)


class TestTraining:
    @pytest.mark.parametrize("data", ["colors", "stripes"])
    def test_a_crop_of_each_image_once_an_epoch(self, request, data, plain):
        dataset = request.getfixturevalue(data)
        features, _ = read(dataset, TRAIN, plain)
        cropped = [image.tobytes() for image in features["image"]]
        places = [
            next((i for i, crop in enumerate(cropped) if crop in crops(image)), None) for image in stored(dataset)
        ]
        assert sorted(i for i in places if i is not None) == list(range(dataset.rows("train")))

    def test_half_are_mirrored(self, colors):
        possible = set().union(*map(crops, stored(colors)))
        features, _ = read(colors, TRAIN)
        as_stored = [image.tobytes() in possible for image in features["image"]]
        mirrored = [image[:, ::-1].tobytes() in possible for image in features["image"]]
        assert all(a != b for a, b in zip(as_stored, mirrored, strict=True))
        assert 0.25 < np.mean(mirrored) < 0.75

    @pytest.mark.parametrize("change", [Augmentation(color_jitter=0.3), Augmentation(resized_crop=0.3)])
    def test_colors_and_scales_change_when_asked(self, colors, change):
        possible = set().union(*map(crops, stored(colors)))
        features, _ = read(colors, TRAIN, dataclasses.replace(SMALL, augmentation=change))
        assert features["image"].shape[1:] == (32, 32, 3)
        as_stored = [im.tobytes() in possible or im[:, ::-1].tobytes() in possible for im in features["image"]]
        assert np.mean(as_stored) < 0.1


class TestHeld:
    """A split whose decoded images fit: they are decoded once, and held in memory."""

    @pytest.mark.parametrize("data", ["colors", "stripes"])
    @pytest.mark.parametrize("change", [{}, {"resized_crop": 0.3, "color_jitter": 0.2}])
    def test_an_image_with_a_seed_is_as_streamed(self, request, data, change, monkeypatch):
        """To the bit: with the same seed for every image, the order is all that differs."""
        dataset = request.getfixturevalue(data)
        monkeypatch.setattr(augment, "seeds", lambda *_, **__: tf.data.Dataset.from_tensors([3, 4]).repeat())
        parts = []
        for size in (0, InputOptions.cache_bytes):
            options = dataclasses.replace(SMALL, cache_bytes=size, augmentation=Augmentation(**change))
            features, labels = read(dataset, TRAIN, options)
            examples = zip(*features.values(), labels, strict=True)
            parts.append(collections.Counter(tuple(x.tobytes() for x in example) for example in examples))
        assert parts[0] == parts[1]
        assert parts[0].total() == dataset.rows("train")

    def test_each_jpeg_is_decoded_once(self, stripes, monkeypatch):
        decoded = []

        def note(encoded):
            decoded.append(encoded)
            return encoded

        def counted(encoded):
            noted = tf.numpy_function(note, [encoded], tf.string)
            return augment.decode_whole(tf.ensure_shape(noted, []))

        monkeypatch.setattr(inputs, "decode_whole", counted)
        features, _ = read(stripes, TRAIN, dataclasses.replace(SMALL, num_epochs=3))
        assert len(features["image"]) == 3 * stripes.rows("train")
        assert len(decoded) == stripes.rows("train")

    @pytest.mark.parametrize("workers", [2, 3])  # the split has two shards
    def test_each_worker_holds_its_own_part(self, colors, workers):
        whole = stored(colors)
        order = {image.tobytes(): i for i, image in enumerate(whole)}
        options = dataclasses.replace(PLAIN, augmentation=Augmentation(flip=False), num_epochs=2)
        counts: collections.Counter[int] = collections.Counter()
        for i in range(workers):
            config = SimpleNamespace(global_id_in_cluster=i, num_worker_replicas=workers)
            for crop in read(colors, TRAIN, options, config)[0]["image"]:
                counts[next(order[image.tobytes()] for image in whole if crop.tobytes() in crops(image))] += 1
        assert counts == collections.Counter(dict.fromkeys(range(len(whole)), 2))

    @pytest.mark.parametrize("data", ["colors", "stripes"])
    def test_only_what_fits(self, request, data):
        dataset = request.getfixturevalue(data)
        size = sum(image.size for image in stored(dataset))
        slack = size // 3  # images of many sizes, judged by those of the first records
        for cached, fits in ((size + slack - 1, True), (size - slack, False), (0, False)):
            assert is_held(dataset, "train", InputOptions(cache_bytes=cached)) == fits
        assert not is_held(dataset, "train", InputOptions(shuffle_buffer=0, cache_bytes=1 << 40))

    @pytest.mark.parametrize(
        ("available", "size"),
        [
            (2 << 30, 512 << 20),
            ((2 << 30) - 1, 256 << 20),
            (-1, 0),
        ],
    )
    def test_the_budget(self, stripes, monkeypatch, available, size):
        """At most a quarter of the memory that is available."""
        monkeypatch.setattr("trainer.data.input_options.memory_at_first", lambda: available)
        options = TrainOptions(data_dir=stripes.path, model_dir="", model="softmax")
        plan = plan_training(stripes, options)
        assert input_options(stripes, plan, split="train", mode=TRAIN).cache_bytes == size


class TestAugmentSettings:
    def test_as_typed(self):
        typed = augmentation(["flip=false color_jitter=0.2", "resized_crop=0.25"])
        assert typed == Augmentation(flip=False, color_jitter=0.2, resized_crop=0.25)
        assert augmentation([]) == Augmentation()

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("flop=true", r"--augment: there is no 'flop'; did you mean flip\? There are: flip=true"),
            ("flip=maybe", "--augment flip=maybe: expected true or false"),
            ("color_jitter=1", "--augment: color_jitter=1.0: must be 0 or more and below 1"),
            ("resized_crop=0", "--augment: resized_crop=0.0: must be above 0"),
        ],
    )
    def test_refused(self, setting, message):
        with pytest.raises(UsageError, match=message):
            augmentation([setting])


class TestNormalized:
    @pytest.mark.parametrize("data", ["colors", "stripes"])
    def test_by_the_train_splits_own_mean_and_deviation(self, request, data):
        dataset = request.getfixturevalue(data)
        pixels = np.concatenate([image.reshape(-1, 3) for image in stored(dataset)]).astype(np.float64)
        images = read(dataset, EVAL)[0]["image"][:8]
        normalized_images = normalized(tf.constant(images), tft.TFTransformOutput(dataset.run_dir))
        assert normalized_images.dtype == tf.float32
        # A stored JPEG is not to the bit what was measured.
        expected = (images - pixels.mean(0)) / pixels.std(0)
        np.testing.assert_allclose(normalized_images, expected, atol=1e-4 if data == "colors" else 0.02)


OPTIONS = [
    AugmentOptions(size=(24, 24), flip=False),
    AugmentOptions(size=(24, 24)),
    AugmentOptions(size=(24, 20), color_jitter=0.3),
    AugmentOptions(size=(24, 20), resized_crop=0.3),
    AugmentOptions(size=(64, 48), resized_crop=0.3, color_jitter=0.3),
]
SEED = (3, 4)
SEEDS = [(i, 7 * i + 1) for i in range(40)]


def photo(height=40, width=56, channels=3):
    """A smooth picture, uint8, no two columns or rows alike."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    return np.uint8(127 + 60 * np.sin(y / 7 + c) + 60 * np.cos(x / 9 - c))


def jpeg(image):
    return tf.io.encode_jpeg(image, quality=95).numpy()


def decoded(encoded):
    return tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE").numpy()


def test_with_seeds_the_crop_is_anywhere_in_the_image():
    windows = {tuple(crop_window(tf.constant([5, 6, 3]), size=(3, 4), seed=seed).numpy()) for seed in SEEDS}
    assert windows == {(top, left, 3, 4) for top in range(3) for left in range(3)}


@pytest.mark.parametrize("seed", [None, SEED])
def test_an_image_that_is_too_small_is_refused(seed):
    with pytest.raises(tf.errors.InvalidArgumentError, match="smaller than the crop of 40x40"):
        augment_jpeg(jpeg(photo(30, 56)), AugmentOptions(size=(40, 40)), seed=seed)


@pytest.mark.parametrize("least", [0.08, 0.5, 1.0])
def test_a_resized_crop_has_at_least_the_share_of_the_image_that_was_asked_for(least):
    for seed in SEEDS:
        window = resized_crop_window(tf.constant([40, 56, 3]), least_area=least, seed=seed)
        top, left, height, width = (int(side) for side in window)
        assert min(top, left) >= 0
        assert top + height <= 40
        assert left + width <= 56
        assert height * width >= 0.9 * least * 40 * 56  # whole pixels
        assert (height, width) == (40, 56) or 0.7 < width / height < 1.45


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_gives_the_model_images_of_one_shape(options):
    encoded = jpeg(photo())
    image = augment_jpeg(encoded, options=options, seed=SEED)
    assert (image.shape, image.dtype) == ((*options.size, 3), tf.uint8)
    raw = augment_raw(decoded(encoded), options=options, seed=SEED)
    np.testing.assert_array_equal(image, raw)  # stored as JPEG or as pixels: the same to the model


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
def test_the_crop_of_a_jpeg_is_that_of_its_pixels(mode, subsampling, progressive):
    """To the bit, at any place, for even and odd sides."""
    rng = np.random.default_rng(1)
    for height, width in ((40, 56), (41, 57), (33, 48), (24, 20)):
        noisy = np.uint8(np.clip(photo(height, width) + rng.normal(0, 20, (height, width, 3)), 0, 255))
        file = io.BytesIO()
        how = {} if mode == "L" else {"subsampling": subsampling}
        Image.fromarray(noisy).convert(mode).save(file, "JPEG", quality=90, progressive=progressive, **how)
        whole = augment.decode_whole(file.getvalue())
        for options in (OPTIONS[0], OPTIONS[3]):
            if min(height - options.size[0], width - options.size[1]) >= 0:
                for seed in (None, *SEEDS[:8]):
                    cropped = augment_jpeg(file.getvalue(), options, seed=seed)
                    np.testing.assert_array_equal(cropped, augment_raw(whole, options, seed=seed))
