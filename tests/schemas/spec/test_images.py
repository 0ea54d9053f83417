"""What is said of mistakes in the schema file of an image dataset."""

from __future__ import annotations

import pytest

from schemas.errors import UsageError
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
