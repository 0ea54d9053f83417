"""Warnings of what the data shows and hardly anyone means: columns that are missing or the same in every train row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from beam_jobs.core.accounting import WRITTEN
from beam_jobs.output.result import Result
from beam_jobs.transform.observed import MISSING, SAME, TRAIN, UNKNOWN
from schemas.dataset.manifest import DataWarning
from schemas.spec import image_keys as keys
from schemas.spec.features import CategoryLabel, Item
from schemas.spec.table import Schema

SHOWN = 5  # columns, or values

Places = Mapping[int, str]  # of a feature's columns, which, and the value


def find_warnings(result: Result, schema: Schema | None, *, classes: Sequence[str] = ()) -> Iterator[DataWarning]:
    """What the counts of a whole job tell.

    `schema`: what the outputs of the transform mean; None where they are images', with these `classes`, or what a
    preprocessing_fn of the user's makes.
    """
    items = {} if schema is None else {item.name: item for item in schema.items}
    read, written = result.total(TRAIN), result.total(WRITTEN, reason="train")
    missing, same = _everywhere(result, MISSING, read), _everywhere(result, SAME, written)
    unknown = _everywhere(result, UNKNOWN, written)
    for name in sorted(missing.keys() | same.keys() | unknown.keys()):
        item = items.get(name)
        if name in missing:
            yield _warning(name, "missing", _missing(item, missing[name]))
        places = {place: value for place, value in same.get(name, {}).items() if place not in missing.get(name, {})}
        if name in unknown and item is not None:
            if name not in missing:
                yield _warning(name, "values_never_occur", _unknown(item))
        elif isinstance(item, CategoryLabel) or (item is None and classes and name == keys.CLASS):
            values = (classes if item is None else item.values) or ()
            yield _warning(name, "one_class", _one_class(values[int(places[0])] if values else None))
        elif places and (item is None or item.by_column or len(places) == item.stored_length):
            yield _warning(name, "constant", _constant(item, places))


def _everywhere(result: Result, stage: str, rows: int) -> dict[str, dict[int, str]]:
    """By name, the places that were counted in a stage for all rows, with their values. Of one row nothing is told."""
    found: dict[str, dict[int, str]] = {}
    for (what, at, name), counted in result.counts.items():
        if at == stage and counted == rows > 1:
            place, _, value = what.partition(" ")
            found.setdefault(name, {})[int(place)] = value
    return found


def _warning(name: str, code: str, message: str) -> DataWarning:
    return DataWarning(feature=name, code=code, message=f"{name}: {message}")


def _unknown(item: Item) -> str:
    return (
        f"none of its `values` ({_some(item.listed or ())}) occurs in the train split, so that all rows share the ids "
        f"of unknown values. Compare their spelling with the column {item.refs[0]!r}."
    )


def _missing(item: Item | None, places: Places) -> str:
    return (
        f"{_columns(item, places)} missing in every row of the train split, so a model learns nothing from it. "
        "Compare `csv: {missing: ...}` with the input, or declare it `kind: ignore`."
    )


def _one_class(name: str | None) -> str:
    found = "" if name is None else f", {name!r}"
    return f"the train split holds one class{found}, so a model has nothing to learn. Is the input complete?"


def _constant(item: Item | None, places: Places) -> str:
    is_now = f" ({places[0]} as it is stored)" if list(places) == [0] else ""
    advice = "Where that is to be expected, it does no harm"
    if item is not None and not _is_part(item, places):
        advice = "Is the input complete? Else declare it `kind: ignore`"
    return (
        f"{_columns(item, places)} the same in every row of the train split{is_now}, so a model learns nothing "
        f"from it. {advice}."
    )


def _columns(item: Item | None, places: Places) -> str:
    """Which columns, with the verb."""
    if item is not None and _is_part(item, places):
        names = _some([item.refs[place] for place in sorted(places)])
        return f"{len(places):,} of {item.width:,} columns ({names}) {'is' if len(places) == 1 else 'are'}"
    if item is None and len(places) > 1:
        return f"the values at {_some(sorted(places))} are"
    return "it is" if item is None else item.columns_are


def _is_part(item: Item, places: Places) -> bool:
    """Whether the feature has other columns too."""
    return item.by_column and len(places) < item.width


def _some(values: Iterable[object]) -> str:
    told = [str(value) for value in values]
    return ", ".join(told[:SHOWN]) + (f" and {len(told) - SHOWN:,} more" if len(told) > SHOWN else "")
