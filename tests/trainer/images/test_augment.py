"""Each image operation, eagerly and inside tf.data."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from trainer.images.augment import (
    AugmentOptions,
    augment_jpeg,
    augment_raw,
    color_jitter,
    crop,
    crop_window,
    decode_and_crop,
    flip,
    resized_crop_window,
    seeds,
)

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


def eagerly(function, *arguments):
    return function(*(tf.constant(argument) for argument in arguments)).numpy()


def in_tf_data(function, *arguments):
    dataset = tf.data.Dataset.from_tensors(tuple(arguments)).map(function)
    return next(iter(dataset)).numpy()


def in_a_graph(function, *arguments):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        values = [np.array(argument, object if isinstance(argument, bytes) else None) for argument in arguments]
        inputs = [tf.compat.v1.placeholder(tf.as_dtype(value.dtype), value.shape) for value in values]
        return session.run(function(*inputs), dict(zip(inputs, values, strict=True)))


each_way = pytest.mark.parametrize("way", [eagerly, in_tf_data, in_a_graph])


@each_way
@pytest.mark.parametrize(
    ("shape", "size", "window"),
    [
        ((40, 56, 3), (20, 30), (10, 13, 20, 30)),
        ((40, 56, 3), (40, 56), (0, 0, 40, 56)),
        ((41, 56, 3), (40, 56), (0, 0, 40, 56)),
        ((42, 58, 3), (40, 56), (1, 1, 40, 56)),
    ],
)
def test_without_a_seed_the_crop_is_at_the_centre(way, shape, size, window):
    assert tuple(way(lambda s: crop_window(s, size=size), np.int32(shape))) == window


def test_with_seeds_the_crop_is_anywhere_in_the_image():
    windows = {tuple(crop_window(tf.constant([5, 6, 3]), size=(3, 4), seed=seed).numpy()) for seed in SEEDS}
    assert windows == {(top, left, 3, 4) for top in range(3) for left in range(3)}


@each_way
@pytest.mark.parametrize("seed", [None, SEED])
def test_an_image_that_is_too_small_is_refused(way, seed):
    with pytest.raises(tf.errors.InvalidArgumentError, match="smaller than the crop of 40x40"):
        way(functools.partial(decode_and_crop, size=(40, 40), seed=seed), jpeg(photo(30, 56)))


@each_way
def test_an_image_that_is_known_to_be_too_small_is_refused_before_anything_runs(way):
    with pytest.raises(ValueError, match="smaller than the crop of 40x40"):
        way(functools.partial(crop, size=(40, 40)), photo(30, 56))


@each_way
@pytest.mark.parametrize("seed", [None, *SEEDS[:5]])
def test_decoding_the_crop_of_a_jpeg_is_cropping_the_decoded_jpeg(way, seed):
    encoded = jpeg(photo())
    cut = way(functools.partial(decode_and_crop, size=(20, 30), seed=seed), encoded)
    np.testing.assert_array_equal(cut, crop(decoded(encoded), size=(20, 30), seed=seed).numpy())


def test_gray_jpegs_come_out_as_rgb():
    cut = decode_and_crop(jpeg(photo(channels=1)), size=(20, 30)).numpy()
    assert cut.shape == (20, 30, 3)
    np.testing.assert_array_equal(cut[..., 0], cut[..., 2])


def test_what_is_no_jpeg_is_refused():
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_and_crop(tf.io.encode_png(photo()), size=(20, 30))


@each_way
def test_flips_half_of_the_images(way):
    image = photo()
    images = way(lambda x: tf.stack([flip(x, seed=seed) for seed in SEEDS]), image)
    flipped = [np.array_equal(x, image[:, ::-1]) for x in images]
    assert flipped == [not np.array_equal(x, image) for x in images]
    assert 10 < sum(flipped) < 30


@each_way
def test_color_jitter_changes_colours_within_range(way):
    changed = way(functools.partial(color_jitter, strength=0.4, seed=SEED), photo())
    assert (changed.dtype, changed.shape) == (np.uint8, photo().shape)
    assert 2 < np.abs(changed.astype(np.float32) - photo()).mean() < 100


def test_color_jitter_of_no_strength_changes_nothing():
    np.testing.assert_array_equal(color_jitter(tf.constant(photo()), strength=0.0, seed=SEED).numpy(), photo())


def test_color_jitter_keeps_gray_gray():
    gray = np.repeat(photo(channels=1), 3, axis=-1)
    changed = color_jitter(tf.constant(gray), strength=0.4, seed=SEED).numpy().astype(int)
    assert np.ptp(changed, axis=-1).max() <= 1


@each_way
@pytest.mark.parametrize("least", [0.08, 0.5, 1.0])
def test_a_resized_crop_has_at_least_the_share_of_the_image_that_was_asked_for(way, least):
    for seed in SEEDS[:10]:
        top, left, height, width = way(
            functools.partial(resized_crop_window, least_area=least, seed=seed), np.array([40, 56, 3], np.int32)
        )
        assert top >= 0
        assert left >= 0
        assert top + height <= 40
        assert left + width <= 56
        assert height * width >= 0.9 * least * 40 * 56  # whole pixels
        assert (height, width) == (40, 56) or 0.7 < width / height < 1.45


OPTIONS = [
    AugmentOptions(size=(24, 24), flip=False),
    AugmentOptions(size=(24, 24)),
    AugmentOptions(size=(24, 20), color_jitter=0.3),
    AugmentOptions(size=(24, 20), resized_crop=0.3),
    AugmentOptions(size=(64, 48), resized_crop=0.3, color_jitter=0.3),
]


@each_way
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_gives_the_model_images_of_one_shape(way, options):
    encoded = jpeg(photo())
    image = way(functools.partial(augment_jpeg, options=options, seed=SEED), encoded)
    assert image.shape == (*options.size, 3)
    assert image.dtype == np.uint8
    raw = way(functools.partial(augment_raw, options=options, seed=SEED), decoded(encoded))
    np.testing.assert_array_equal(image, raw)  # stored as JPEG or as pixels: the same to the model


@each_way
@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_without_a_seed_every_option_gives_the_centre_crop(way, options):
    encoded = jpeg(photo())
    expected = crop(decoded(encoded), size=options.size).numpy()
    np.testing.assert_array_equal(way(functools.partial(augment_jpeg, options=options), encoded), expected)
    np.testing.assert_array_equal(way(functools.partial(augment_raw, options=options), decoded(encoded)), expected)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_shapes_are_known_before_anything_runs(options):
    known = (*options.size, 3)
    encoded = tf.data.Dataset.from_tensors(jpeg(photo()))
    assert encoded.map(lambda e: augment_jpeg(e, options, seed=SEED)).element_spec.shape == known
    assert encoded.map(lambda e: augment_jpeg(e, options)).element_spec.shape == known


def test_one_seed_is_one_image_and_every_image_gets_its_own():
    options = AugmentOptions(size=(24, 24), color_jitter=0.3)
    images = tf.data.Dataset.from_tensors(photo()).repeat(20)

    def run(seed):
        pairs = tf.data.Dataset.zip((images, seeds(seed)))
        return [x.tobytes() for x in pairs.map(lambda x, s: augment_raw(x, options, seed=s)).as_numpy_iterator()]

    assert len(set(run(1))) == 20
    assert run(1) == run(1)
    assert run(1) != run(2)


def test_seeds_differ_and_can_begin_anywhere():
    whole = [tuple(seed) for seed in seeds(1).take(20).as_numpy_iterator()]
    assert len(set(whole)) == 20
    assert [tuple(seed) for seed in seeds(1, begin=7).take(13).as_numpy_iterator()] == whole[7:]
    assert [tuple(seed) for seed in seeds().take(20).as_numpy_iterator()] != whole


@pytest.mark.parametrize(
    "options",
    [{"size": (0, 4)}, {"size": (4,)}, {"color_jitter": 1.0}, {"color_jitter": -0.1}, {"resized_crop": 0.0}],
)
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        AugmentOptions(**{"size": (4, 4), **options})
