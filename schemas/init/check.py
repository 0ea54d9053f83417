"""An existing schema and new CSV files: which columns differ, which records would be lost, what was not foreseen."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.csv.file import items_of, read_beginning
from schemas.csv.header import ignore_line, is_header
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.errors import UsageError, counted, few
from schemas.formats import row_format
from schemas.init.kinds import number, percent, shown
from schemas.init.survey import Progress
from schemas.spec.features import Bucketize, Category, CategoryLabel, Feature, Ignore, Label, Numeric, Scale
from schemas.spec.loader import AnySchema
from schemas.spec.table import NOT_FINITE, OFFSET, Schema

_RANGE_BYTES = 64 << 20
_UNSEEN = 1_000  # distinct values of a feature that are counted
_TOLD = 8  # of one kind


@dataclasses.dataclass
class Unforeseen:
    """What a feature's values are beyond what the schema says: unknown ones by number, and the span of numbers."""

    unseen: collections.Counter[bytes] = dataclasses.field(default_factory=collections.Counter)
    known: set[bytes] = dataclasses.field(default_factory=set)
    low: float = np.inf
    high: float = -np.inf
    outside: int = 0
    values: int = 0


@dataclasses.dataclass
class Differences:
    """How files differ from a schema.

    Attributes:
        noun: what is read: a record, or an image.
        refused: by file, why a job would not begin.
        empty: files without a record.
        missing: columns that no file of the schema may lack, with the features that read them.
        extra: columns that no feature reads, each with its line for the schema.
        read: the number of records; of images, those that were looked at.
        rejected: by reason and column, how many records would be rejected.
        examples: by reason and column, the first of them: file, byte offset, what was found.
        rejected_at: by file, the byte offsets of these records, int64 arrays.
        seen: by feature, values that the schema does not list, and numbers beyond its range.
        absent: the classes of images that do not occur.
    """

    noun: str = "record"
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    empty: list[str] = dataclasses.field(default_factory=list)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    extra: dict[str, str] = dataclasses.field(default_factory=dict)
    read: int = 0
    rejected: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    rejected_at: dict[str, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    seen: dict[str, Unforeseen] = dataclasses.field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """How many records a job would reject."""
        return sum(self.rejected.values())

    @property
    def loses(self) -> bool:
        """Whether a job with this schema would lose records of the files, or find none."""
        return bool(self.lost or self.refused) or not self.read


def check_table(
    schema: Schema, paths: Sequence[str], *, sample: bool = False, progress: Progress = lambda rows, share: None
) -> Differences:
    """Reads files as a job would, and notes what the schema does not foresee.

    Where columns are missing or new, the others are read all the same.

    Args:
        schema: the schema.
        paths: the files.
        sample: read the first megabytes of each file only.
        progress: called after each batch of records.

    Raises:
        MillraceError: a file cannot be read.
    """
    found = Differences()
    for path in paths:
        form = row_format(schema)
        try:
            reduced = _compare_columns(schema, path, found)  # refuses what is no CSV
            label_there = all(str(ref) not in found.missing for ref in schema.label.refs)
            file = form.open_file(
                path, reduced, label="required" if label_there else "optional", max_input_ratio=MAX_INPUT_RATIO
            )
        except UsageError as error:
            found.refused[path] = str(error).removeprefix(f"{path}: ").splitlines()[0]
            continue
        items = [item for item in reduced.items if item.raw is not None]
        for part in form.plan_ranges(file, range_bytes=_RANGE_BYTES):
            for decoded in form.read_range(part, reduced, with_split=False):
                found.read += decoded.read
                places = found.rejected_at.setdefault(path, [])
                places.append(np.array([reject.offset for reject in decoded.rejects], np.int64))
                for reject in decoded.rejects:
                    key = (reject.reason, reject.column or "")
                    found.rejected[key] += 1
                    found.examples.setdefault(key, f"{path} at byte {reject.offset:,}: {reject.detail}")
                for feature, rows in _not_finite(items, decoded.batch):
                    key, offsets = (NOT_FINITE, feature.name), np.asarray(decoded.batch.column(OFFSET))[rows]
                    found.rejected[key] += len(rows)
                    found.examples.setdefault(key, f"{path} at byte {offsets[0]:,}{feature.not_finite_hint}")
                    places.append(offsets)
                for item in items:
                    if (place := decoded.batch.schema.get_field_index(item.name)) >= 0:
                        _look(item, decoded.batch.column(place), schema, found)
                progress(found.read, None)
                if sample:
                    break
            if sample:
                break
    return found


def _compare_columns(schema: Schema, path: str, found: Differences) -> Schema:
    """Notes missing and extra columns. Returns the schema without what the file lacks, and with what it has beyond."""
    beginning = read_beginning(path, schema.csv)
    if beginning.span[0] == beginning.span[1]:
        found.empty.append(path)
        return schema
    fields = beginning.fields(schema.csv)
    try:
        if not is_header(path, fields, schema, items_of(schema, prediction=False)):
            return schema
    except UsageError:
        return schema  # which opening the file tells
    by_position = {ref for item in schema.items for ref in item.refs if isinstance(ref, int)}
    wanted = {ref if isinstance(ref, str) else "": item.name for item in schema.items for ref in item.refs}
    lacking = [name for name in wanted if name and name not in fields]
    extra = [i for i, name in enumerate(fields) if name not in wanted and i not in by_position]
    if not lacking and not extra:
        return schema
    refused = []
    for name in lacking:
        found.missing[name] = wanted[name]
        refused.append(f"lacks the column {name!r}")
    more = []
    for i in extra:
        found.extra[fields[i] or str(i)] = f"- {ignore_line(fields[i], i)}"
        refused.append(f"has the column {fields[i]!r}, which no feature reads")
        more.append(Ignore(name=f"new_column_{i}", column=i, kind="ignore"))
    found.refused[path] = "; ".join(refused[:3]) + (f"; and {len(refused) - 3} more" if len(refused) > 3 else "")
    kept = [feature for feature in schema.features if not {str(ref) for ref in feature.refs} & set(lacking)]
    options = schema.csv.model_copy(update={"header": "present"})
    return schema.model_copy(update={"features": (*kept, *more), "csv": options})


def _look(item: Feature | Label, column: pa.ListArray, schema: Schema, found: Differences) -> None:
    """Notes the values of a batch that the schema accepts and does not foresee."""
    flat = column.flatten()
    if isinstance(item, Category | CategoryLabel) and item.values is not None:
        seen = found.seen.setdefault(item.name, Unforeseen())
        seen.values += len(flat)
        known = {value.strip() for value in item.values} | {token.strip() for token in item.tokens(schema.csv.missing)}
        encoded = flat.dictionary_encode()
        counts = np.bincount(encoded.indices.to_numpy(), minlength=len(encoded.dictionary))
        for value, count in zip(encoded.dictionary.to_pylist(), counts.tolist(), strict=True):
            text = value.strip().decode("utf-8", "replace")
            if text in known:
                seen.known.add(text.encode())
            elif len(seen.unseen) < _UNSEEN or value.strip() in seen.unseen:
                seen.unseen[value.strip()] += count
    elif isinstance(item, Numeric):
        span = pc.min_max(flat.filter(pc.is_finite(flat))).as_py()
        if span["min"] is None:
            return
        seen = found.seen.setdefault(item.name, Unforeseen())
        seen.values += len(flat)
        seen.low, seen.high = min(seen.low, span["min"]), max(seen.high, span["max"])
        if (bounds := _bounds(item)) is not None:
            seen.outside += int(pc.sum(pc.or_(pc.less(flat, bounds[0]), pc.greater(flat, bounds[1]))).as_py() or 0)


def _not_finite(items: Sequence[Feature | Label], batch: pa.RecordBatch) -> Iterator[tuple[Numeric, np.ndarray]]:
    """The rows of a batch that a feature's transform makes no number of, each with the first such feature."""
    good = np.ones(batch.num_rows, bool)
    for item in items:
        if isinstance(item, Numeric) and item.transform == "log" and item.name in batch.schema.names:
            values = np.asarray(batch.column(item.name).flatten()).reshape(-1, item.width)
            rows = np.flatnonzero(good & (values <= -1).any(axis=1))
            good[rows] = False
            if len(rows):
                yield item, rows


def _bounds(item: Numeric) -> tuple[float, float] | None:
    """The numbers that the schema expects; None where it says none."""
    match item.transform:
        case Scale(scale=scale):
            return scale
        case Bucketize(bucketize=tuple() as bounds) if len(bounds) > 1:
            return bounds[0], bounds[-1]
        case _:
            return None


def render(found: Differences, schema: AnySchema, source: str) -> Iterator[str]:
    """The differences as lines of text, the worst first."""
    for path, why in found.refused.items():
        yield f"{path}: a job refuses it: {why}"
    for path in found.empty:
        yield f"{path}: the file has no record"
    missing = [f"missing column {name!r}, which {feature!r} reads" for name, feature in found.missing.items()]
    extra = [f"extra column {name!r}; to leave it out, add  {line}" for name, line in found.extra.items()]
    for lines in (missing, extra):
        yield from lines[:_TOLD]
        if len(lines) > _TOLD:
            yield f"and {counted(len(lines) - _TOLD, f'more {lines[0].split()[0]} column')}"
    for (reason, column), count in found.rejected.most_common():
        where = f" in {column!r}" if column else ""
        example = found.examples[reason, column]
        yield f"rejected: {counted(count, found.noun)} ({percent(count, found.read)}), {reason}{where}; first {example}"
    if isinstance(schema, Schema):
        yield from _unforeseen(found, schema)
    if found.absent:
        yield f"classes that do not occur: {', '.join(found.absent[:_TOLD])}"
    would = f"{found.read - found.lost:,} of {counted(found.read, found.noun)} would be written"
    if found.refused:
        fits_not = f"{source} does not fit: {counted(len(found.refused), 'file')} would be refused"
        yield f"{fits_not}; without that, {would}" if found.read else fits_not
    elif found.lost:
        yield f"{source} would lose {found.noun}s: {would}"
    elif not found.read:
        yield f"{source} does not fit: a job finds no {found.noun} to write"
    else:
        yield f"{source} fits: {would}"


def _unforeseen(found: Differences, schema: Schema) -> Iterator[str]:
    for name, seen in found.seen.items():
        yield from _beyond(name, seen, schema)
    open_ended = [item.name for item in schema.features if isinstance(item, Category) and item.vocabulary is not None]
    if open_ended and found.read:
        yield (
            f"not checked for unseen values: {few(open_ended, _TOLD)}; the schema lists none, a dataset does: "
            "see `millrace compare DATASET FILES`"
        )


def _beyond(name: str, seen: Unforeseen, schema: Schema) -> Iterator[str]:
    item = next(item for item in schema.items if item.name == name)
    if isinstance(item, CategoryLabel) and item.values is not None and seen.values:
        absent = [value for value in item.values if value.strip().encode() not in seen.known]
        if absent:
            yield f"classes that do not occur: {', '.join(absent[:_TOLD])} of {name!r}"
    elif isinstance(item, Category) and seen.unseen:
        told = ", ".join(f"{shown(value)!r} {count:,}" for value, count in seen.unseen.most_common(_TOLD))
        total = sum(seen.unseen.values())
        where = f"{counted(total, 'record')} ({percent(total, seen.values)})"
        yield f"unseen values of {name!r} in {where}, which become the id of unknown values: {told}"
    elif isinstance(item, Numeric) and seen.outside and (bounds := _bounds(item)) is not None:
        span = f"{number(seen.low)} to {number(seen.high)}"
        expected = f"{number(bounds[0])} to {number(bounds[1])}"
        yield f"{counted(seen.outside, 'number')} of {name!r} beyond the schema's {expected}: found {span}"


def as_json(found: Differences) -> dict[str, Any]:
    """The differences for programs."""
    return {
        "read": found.read,
        "lost": found.lost,
        "refused": found.refused,
        "missing_columns": found.missing,
        "extra_columns": list(found.extra),
        "rejected": [
            {"reason": reason, "column": column or None, "records": count, "first": found.examples[reason, column]}
            for (reason, column), count in found.rejected.most_common()
        ],
        "unseen_values": {
            name: {shown(value, 200): count for value, count in seen.unseen.most_common(100)}
            for name, seen in found.seen.items()
            if seen.unseen
        },
        "ranges": {
            name: {"low": seen.low, "high": seen.high, "outside": seen.outside}
            for name, seen in found.seen.items()
            if seen.low <= seen.high
        },
    }
