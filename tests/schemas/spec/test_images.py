"""Schemas of images, and their options."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import UsageError
from schemas.spec.images import Exact, ImageLabel, ImageOptions, ImageSplit, PairOptions, Shorter
from schemas.spec.loader import parse_schema

FOLDERS = "name: s\nformat: image_folder\nimages: {resize: {exact: [8, 8]}}\n"
PAIRS = "name: s\nformat: image_pairs\nimages: {resize: {exact: [8, 8]}}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (FOLDERS + "label: {name: class}", "s.yaml:4: label.name: unknown key; allowed: values"),
        (FOLDERS + "label: {values: [a]}", "s.yaml:4: label.values: found ['a']; allowed: at least 2 items"),
        (FOLDERS + "split: {by: row}", "s.yaml:4: split.by: found 'row'; allowed: content, name"),
        (
            FOLDERS + "split: {train: 0.8, eval: 0.2}",
            "s.yaml:4: split: train 0.8, eval 0.2 and test 0.1 sum to 1.1; the sum must be 1",
        ),
        (FOLDERS + "pairs: {}", "s.yaml:4: pairs: unknown key; allowed: name, images, format, label, split"),
        (FOLDERS.replace("images: {", "images: {max_pixels: 2684354560, "), "allowed: 268435456 or less"),
        (FOLDERS.replace("[8, 8]", "8"), "images.resize: found {exact: 8}; allowed: {shorter: N}, or {exact: ["),
        (PAIRS + "pairs: {trian: {}}", "s.yaml:4: pairs.trian: unknown key, did you mean 'train'?; allowed: seed,"),
        (PAIRS + "pairs: {train: {same: 3}}", "s.yaml:4: pairs.train: the key 'identities' is missing"),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_what_is_allowed(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schema(text.encode(), "s.yaml")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("resize", "before", "after"),
    [
        (Shorter(shorter=256), (375, 500), (256, 341)),
        (Shorter(shorter=256), (500, 375), (341, 256)),
        (Shorter(shorter=256), (100, 100), (256, 256)),
        (Shorter(shorter=2), (4, 5), (2, 3)),  # 2.5 rounds up
        (Shorter(shorter=64), (64, 80), (64, 80)),
        (Exact(exact=(28, 30)), (500, 1), (28, 30)),
    ],
)
def test_size_after_resizing(resize: Shorter | Exact, before: tuple[int, int], after: tuple[int, int]) -> None:
    assert resize.size(*before) == after


def test_defaults() -> None:
    images = ImageOptions.model_validate({"resize": {"exact": (32, 48)}})
    assert (images.store, images.quality, images.input_size, images.channels) == ("jpeg", 95, (32, 48), "measured")
    assert ImageLabel().values is None
    assert ImageSplit().splits == ("train", "eval", "test")


def test_fixed_channels() -> None:
    images = ImageOptions.model_validate({"resize": {"exact": (8, 8)}, "channels": {"means": (123, 117, 104)}})
    assert images.channels.means == (123.0, 117.0, 104.0)  # type: ignore[union-attr]
    assert images.channels.deviations == (1.0, 1.0, 1.0)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model", "value", "message"),
    [
        (ImageOptions, {}, "resize"),
        (ImageOptions, {"resize": {"shorter": 0}}, "greater than 0"),
        (ImageOptions, {"resize": {"shorter": 9999}}, "less than or equal"),
        (ImageOptions, {"resize": {"longer": 9}}, "longer"),
        (ImageOptions, {"resize": {"shorter": 256}}, "add `crop: [height, width]`"),
        (ImageOptions, {"resize": {"shorter": 64}, "crop": (65, 64)}, "larger than the resized image"),
        (ImageOptions, {"resize": {"exact": (64, 64)}, "max_pixels": 100}, "max_pixels allows 100"),
        (ImageOptions, {"resize": {"exact": (64, 64)}, "store": "png"}, "'jpeg' or 'raw'"),
        (ImageOptions, {"resize": {"exact": (64, 64)}, "quality": 101}, "less than or equal to 100"),
        (ImageOptions, {"resize": {"exact": (64, 64)}, "listing": "csv"}, "`root` belongs to `listing: csv`"),
        (ImageOptions, {"resize": {"exact": (64, 64)}, "root": "photos"}, "`root` belongs to `listing: csv`"),
        (
            ImageOptions,
            {"resize": {"exact": (64, 64)}, "channels": {"means": (300, 0, 0)}},
            "less than or equal to 255",
        ),
        (ImageLabel, {"values": ("a",)}, "at least 2"),
        (ImageLabel, {"values": ("a", "a")}, "each value only once"),
        (ImageSplit, {"train": 0.5, "eval": 0.1}, "sum to 0.7"),
        (ImageSplit, {"train": 0.0, "eval": 0.5, "test": 0.5}, "no data for training"),
        (PairOptions, {"train": {"identities": 0.5, "same": 1, "different": 1}}, "sum to 0.5"),
        (PairOptions, {"train": {"identities": 1.0, "same": 0, "different": 1}}, "greater than 0"),
    ],
)
def test_values_that_are_refused(model: Any, value: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(value)
    assert message in str(caught.value)
