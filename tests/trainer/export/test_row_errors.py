"""The rules by which a served model rejects a row."""

from __future__ import annotations

import tensorflow as tf

from schemas.spec.table import Schema
from trainer.export import row_errors


def test_an_empty_category_is_no_word_of_a_vocabulary_whatever_means_missing():
    schema = Schema.model_validate(
        {
            "name": "t",
            "format": "csv",
            "csv": {"missing": ("?",)},
            "features": (
                {"name": "word", "kind": "category"},
                {"name": "given", "kind": "category", "values": ("a",)},
                {"name": "filled", "kind": "category", "missing": "none"},
            ),
            "label": {"name": "y", "kind": "numeric"},
        }
    )
    sent = ["", " \x0b", "?", "a\nb", "x"]
    errors = row_errors.raw_errors({name: tf.constant(sent) for name in ("word", "given", "filled")}, schema)
    assert errors.numpy().tolist() == [
        b"word: missing_value",
        b"word: missing_value",
        b"word: missing_value",
        b"word: line_end_in_value",
        b"",
    ]
    alone = row_errors.raw_errors({"given": tf.constant(sent)}, schema)
    assert alone.numpy().tolist() == [b"", b"", b"given: missing_value", b"", b""]
