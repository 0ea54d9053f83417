"""The rules by which the preprocessing job rejects rows, as TensorFlow ops on the rows of a request.

They are the rules of `schemas.csv.decode` for raw inputs, and of `beam_jobs.records.encode` for transformed features. A
row's error is `<input>: <reason>`, or '' if the row is valid; with several errors it is the first in the schema's
order, as in the job. A row's error does not depend on the other rows of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

import tensorflow as tf

from schemas.spec.features import (
    Bool,
    Category,
    Cross,
    Feature,
    Ignore,
    Key,
    Numeric,
    OneHot,
    ReadAsNumbers,
    ReadAsStrings,
    Text,
    Weight,
)
from schemas.spec.table import NOT_FINITE, Schema

ROW_ERROR = "_row_error"  # an additional feature; features of a schema never begin with an underscore

OUT_OF_RANGE, NOT_ONE_HOT = "out_of_range", "not_one_hot"
NOT_UTF8, NOT_A_BOOL, LINE_END = "not_utf8", "not_a_bool", "line_end_in_value"
TOO_LONG = "too_long"

_ONE, _MINUS_ZERO = 0x3F800000, -(1 << 31)  # the bits of these float32s, as int32

Rule = tuple[str, tf.Tensor]  # a reason code, and the rows that it rejects, bool `[batch]`
Block = tuple[list[str], tf.Tensor]  # messages, and the rows that each is about, bool `[batch, messages]`


def raw_errors(raw: Mapping[str, tf.Tensor], schema: Schema) -> tf.Tensor:
    """Returns the errors that the job finds before the transform.

    Args:
      raw: by name, float32 `[batch]` or `[batch, width]`, or string `[batch]`;
        see `schemas.spec.table.serving_columns`.
      schema: the schema of the columns.

    Returns:
      string `[batch]`, '' for a valid row.
    """
    blocks: list[Block] = []
    features = [feature for feature in schema.features if feature.name in raw]
    for reason, run in itertools.groupby(features, lambda feature: _alike(feature, raw[feature.name])):
        if reason is not None:
            blocks.append(_numbers_block([feature.name for feature in run], reason, raw))
            continue
        for feature in run:
            for code, bad in _rules(feature, raw[feature.name], feature.tokens(schema.csv.missing)):
                blocks.append(([f"{feature.name}: {code}"], bad[:, tf.newaxis]))
    return _first(blocks, like=next(iter(raw.values())))


def _alike(feature: Feature, x: tf.Tensor) -> str | None:
    """What rejects a missing number, '' if nothing does; None for what is no single number."""
    return (feature.if_missing or "") if isinstance(feature, Numeric) and x.shape.rank == 1 else None


def _numbers_block(names: Sequence[str], if_missing: str, raw: Mapping[str, tf.Tensor]) -> Block:
    """The rules for numbers that are declared alike, by ops whose number does not depend on theirs."""
    x = tf.stack([raw[name] for name in names], axis=1)
    rules = [(if_missing, tf.math.is_nan(x))] if if_missing else []
    rules.append((OUT_OF_RANGE, tf.math.is_inf(x)))
    bad = tf.stack([bad for _, bad in rules], axis=2)  # [batch, names, rules]
    messages = [f"{name}: {reason}" for name in names for reason, _ in rules]
    return messages, tf.reshape(bad, [-1, len(messages)])


def not_finite_errors(features: Mapping[str, Any], *, like: tf.Tensor) -> tf.Tensor:
    """Returns the errors that the job finds after the transform: features that are not finite.

    Args:
      features: transformed features by name, dense or sparse, batch first.
      like: any tensor `[batch, ...]`.

    Returns:
      string `[batch]`, '' for a row whose numbers are all finite.
    """
    blocks: list[Block] = []
    for together, run in itertools.groupby(features.items(), lambda item: _is_number(item[1])):
        floats = [(f"{name}: {NOT_FINITE}", x) for name, x in run if x.dtype.is_floating]
        if together:
            bad = ~tf.math.is_finite(tf.stack([x for _, x in floats], axis=1))
            blocks.append(([message for message, _ in floats], bad))
        else:
            blocks += [([message], _not_finite(x, like)[:, tf.newaxis]) for message, x in floats]
    return _first(blocks, like=like)


def _is_number(x: Any) -> bool:
    """Whether it is a single number for each row, which is taken together with others: tables of 1,000 are many ops."""
    return not isinstance(x, tf.SparseTensor) and x.dtype == tf.float32 and x.shape.rank == 1


def neutral(features: Mapping[str, Any], errors: tf.Tensor) -> dict[str, Any]:
    """Puts zeros into rows that have an error, so that the model never reads invalid values."""
    good = tf.equal(errors, "")

    def zeroed(x: Any) -> Any:
        if isinstance(x, tf.SparseTensor):
            values = in_rows(tf.gather(good, x.indices[:, 0]), x.values, tf.zeros([], x.dtype))
            return tf.SparseTensor(x.indices, values, x.dense_shape)
        return in_rows(good, x, tf.zeros([], x.dtype))

    numbers = [name for name, x in features.items() if _is_number(x)]
    together = zeroed(tf.stack([features[name] for name in numbers], axis=1)) if numbers else None
    zeroed_numbers = dict(zip(numbers, tf.unstack(together, axis=1) if numbers else [], strict=True))
    return {name: zeroed_numbers[name] if name in zeroed_numbers else zeroed(x) for name, x in features.items()}


def in_rows(rows: tf.Tensor, x: tf.Tensor, otherwise: tf.Tensor) -> tf.Tensor:
    """Returns `x`, `[batch, ...]`, where bool `[batch]` is true, and the scalar `otherwise` in all other rows."""
    if x.shape.rank is None:
        ones = tf.ones([tf.rank(x) - 1], tf.int32)
        return tf.where(tf.reshape(rows, tf.concat([tf.shape(rows), ones], 0)), x, otherwise)
    mask = tf.reshape(rows, [-1] + [1] * (x.shape.rank - 1)) if x.shape.rank > 1 else rows
    return tf.ensure_shape(tf.where(mask, x, otherwise), x.shape)


def _rules(feature: Feature, x: tf.Tensor, missing: Sequence[str]) -> Iterator[Rule]:
    """The rules for a feature, by its kind."""
    match feature:
        case Numeric():
            yield from _number_rules(feature, x)
        case OneHot():
            yield from _number_rules(feature, x)
            yield NOT_ONE_HOT, _not_one_hot(x)
        case Bool() | Category() | Key() | Text():
            values, rows = tf.unique(x)  # strings repeat within a batch: check each distinct one once
            rules = [*_string_rules(feature, values, missing)]
            if isinstance(feature, Bool):
                rules.append(_bool_rule(feature, values, missing))
            yield from ((reason, tf.gather(bad, rows)) for reason, bad in rules)
        case Weight() | Ignore() | Cross():  # not in requests
            return
        case _:
            assert_never(feature)


def _number_rules(feature: ReadAsNumbers, x: tf.Tensor) -> Iterator[Rule]:
    if feature.if_missing is not None:
        yield feature.if_missing, _any(tf.math.is_nan(x))
    yield OUT_OF_RANGE, _any(tf.math.is_inf(x))


def _not_one_hot(x: tf.Tensor) -> tf.Tensor:
    """bool `[batch]`: which rows, float32 `[batch, width]`, have anything but one 1 and zeros.

    It compares bits: TensorFlow takes subnormal numbers for zeros, and the reader does not.
    """
    bits = tf.bitcast(x, tf.int32)
    is_one, is_zero = tf.equal(bits, _ONE), tf.equal(bits, 0) | tf.equal(bits, _MINUS_ZERO)
    return ~tf.reduce_all(is_one | is_zero, axis=1) | tf.not_equal(tf.math.count_nonzero(is_one, axis=1), 1)


def _string_rules(feature: ReadAsStrings, x: tf.Tensor, missing: Sequence[str]) -> Iterator[Rule]:
    trimmed, absent = _trim(x, missing)
    if feature.in_vocabulary:  # a vocabulary has one value per line, and no empty values
        yield LINE_END, tf.not_equal(tf.strings.regex_replace(trimmed, r"[\r\n]", ""), trimmed)
        absent |= tf.equal(trimmed, "")
    if isinstance(feature, Text):
        yield TOO_LONG, too_long(feature, x)
    yield NOT_UTF8, tf.not_equal(tf.strings.unicode_transcode(x, "UTF-8", "UTF-8", errors="replace"), x)
    if feature.if_missing is not None:
        yield feature.if_missing, absent


def too_long(feature: Text, x: tf.Tensor) -> tf.Tensor:
    """Returns which texts `[n]` have more bytes than the schema allows: bool `[n]`."""
    return tf.strings.length(x) > feature.max_bytes


def _bool_rule(feature: Bool, x: tf.Tensor, missing: Sequence[str]) -> Rule:
    trimmed, absent = _trim(x, missing)
    tokens = [_trimmed(token.lower()) for token in (*feature.true, *feature.false)]
    # TensorFlow's lower() truncates a string at its first NUL; no token contains one.
    matches = _is_in(tf.strings.lower(trimmed, encoding="utf-8"), tokens)
    matches &= tf.strings.regex_full_match(trimmed, r"(?s)[^\x00]*")
    return NOT_A_BOOL, ~absent & ~matches


def _trim(x: tf.Tensor, missing: Sequence[str]) -> tuple[tf.Tensor, tf.Tensor]:
    """Trims strings `[n]`; also returns which of them mean missing, bool `[n]`."""
    trimmed = tf.strings.strip(x)
    return trimmed, _is_in(trimmed, [_trimmed(token) for token in missing])


def _trimmed(token: str) -> bytes:
    """Trims ASCII white space, like the reader and `tf.strings.strip`."""
    return token.encode().strip()


def _is_in(x: tf.Tensor, values: Sequence[bytes]) -> tf.Tensor:
    """bool `[n]`: which strings `[n]` are among the values."""
    return tf.reduce_any(tf.equal(x[:, tf.newaxis], tf.constant([list(values)], tf.string)), axis=1)


def _any(bad: tf.Tensor) -> tf.Tensor:
    """bool `[batch]` or `[batch, width]` -> bool `[batch]`."""
    return bad if bad.shape.rank == 1 else tf.reduce_any(bad, axis=1)


def _not_finite(x: Any, like: tf.Tensor) -> tf.Tensor:
    if isinstance(x, tf.SparseTensor):
        bad = tf.cast(~tf.math.is_finite(x.values), tf.int32)
        return tf.math.unsorted_segment_max(bad, x.indices[:, 0], tf.shape(like, tf.int64)[0]) > 0
    return tf.reduce_any(~tf.math.is_finite(x), axis=list(range(1, x.shape.rank)))


def _first(blocks: Sequence[Block], *, like: tf.Tensor) -> tf.Tensor:
    """string `[batch]`: the message of the first rule that rejects a row."""
    messages = [message for block_messages, _ in blocks for message in block_messages]
    if not messages:
        return tf.fill(tf.shape(like)[:1], "")
    bad = tf.concat([bad for _, bad in blocks], axis=1)
    first = tf.reduce_min(tf.where(bad, tf.range(len(messages)), len(messages)), axis=1)
    return tf.gather(tf.constant([*messages, ""]), first)
