"""Warns of suspicious data in a run: each function in CHECKS makes one check, and yields its warnings."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_jobs.core.accounting import NUMBERS_LEFT, NUMBERS_WRITTEN
from beam_jobs.records.result import Result
from beam_jobs.runs.drift import TRAIN_SPLIT, Compared
from beam_jobs.transform.vocabularies import LOOKED_UP, UNSEEN
from schemas.dataset.manifest import DataWarning, InputPart
from schemas.display import readable
from schemas.errors import counted, few
from schemas.profile import leakage_findings, spellings
from schemas.profile.statistics import Statistics
from schemas.profile.summary import Summary
from schemas.spec.features import Category, CategoryLabel, Item, NumericLabel, Text, Weight
from schemas.spec.loader import AnySchema
from schemas.spec.split_hash import uneven_splits
from schemas.spec.table import Schema

UNSEEN_VALUES, DRIFT = "unseen_values", "drift"  # the codes of warnings about added records
LARGE_VOCABULARY = 1_000_000  # a vocabulary of this many words or more is warned of
MOST_FILES = 100_000  # the most input files whose digests are compared
LOST_SHARE = 0.01  # a column that loses this share of its distinct numbers as float32, or more, is warned of


@dataclasses.dataclass(frozen=True)
class WrittenRun:
    """The results of a run, for the checks.

    Attributes:
      schema: the schema of the records.
      result: the result of the run's pipeline.
      rows: the number of written records of each split.
      inputs: the manifest's entries of the input files.
      statistics: the statistics of the written records; None: the job did not collect statistics.
      described: the statistics as JSON values; None: the job did not collect statistics.
      leakage: the content of `leakage.json`; None: the job did not search for leakage.
      compared: the comparisons of the splits with each other, and with an earlier dataset.
    """

    schema: AnySchema
    result: Result
    rows: Mapping[str, int]
    inputs: Iterable[InputPart]
    statistics: Statistics | None
    described: Mapping[str, Any] | None
    leakage: Mapping[str, Any] | None
    compared: Compared

    @property
    def summaries(self) -> Mapping[tuple[str, str], Summary]:
        """The summary of each raw column, by split and name."""
        return {} if self.statistics is None else self.statistics.summaries

    @property
    def features(self) -> Sequence[Mapping[str, Any]]:
        """The description of each raw column."""
        return () if self.described is None else self.described["features"]

    @property
    def categories(self) -> Iterator[Category | CategoryLabel]:
        """The schema's categorical features, and the label if it is categorical."""
        items = self.schema.items if isinstance(self.schema, Schema) else ()
        yield from (item for item in items if isinstance(item, Category | CategoryLabel))


Check = Callable[[WrittenRun], Iterator[DataWarning]]


def warnings(written: WrittenRun, checks: Iterable[Check]) -> Iterator[DataWarning]:
    """Makes the checks, one after the other, and yields their warnings.

    Args:
      written: the results of the run.
      checks: CHECKS for a new dataset, CHECKS_OF_ADDED for records that are added to a dataset.
    """
    for check in checks:
        yield from check(written)


def _warning(name: str, code: str, message: str) -> DataWarning:
    """A warning about the feature `name`. The name is put before the message."""
    return DataWarning(feature=name, code=code, message=f"{name}: {message}")


def _leakage(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of the findings of leakage, if the job searched for leakage."""
    yield from leakage_findings.warnings(written.leakage) if written.leakage else ()


Places = Mapping[int, str]  # for columns of a feature: the column's index -> the column's constant value

_COMPLETE = "Check that the input is complete"


def _constant(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of columns that are empty, or have the same value, in every row of the train split.

    A feature may have several columns. They are first collected by feature, so that each feature gets one warning.
    """
    items = {item.name: item for item in written.schema.items} if isinstance(written.schema, Schema) else {}
    missing: dict[str, dict[int, str]] = {}
    same: dict[str, dict[int, str]] = {}
    columns: collections.Counter[str] = collections.Counter()
    for column in written.features:
        feature, train = column["feature"], column["splits"].get(TRAIN_SPLIT, {"count": 0, "missing": 0})
        item, place = items.get(feature), columns[feature]
        columns[feature] += 1
        if column["role"] == "key" or column["kind"] == "image" or train["count"] + train["missing"] < 2:
            continue
        pooled = item is not None and item.by_column and column["name"] == feature  # one description for all columns
        at = range(item.width) if item is not None and pooled else range(place, place + 1)
        if not train["count"]:
            missing.setdefault(feature, {}).update(dict.fromkeys(at, ""))
        elif train["distinct"] == 1 and train["distinct_exact"] and not train["missing"]:
            value = train["top_values"][0]["value"]
            if column["role"] != "label" or column["type"] != "string":  # `_one_class` warns of labels
                text = readable(value) if column["type"] == "number" else repr(value)
                same.setdefault(feature, {}).update(dict.fromkeys(at, text))
    for name, places in missing.items():
        message = (
            f"{_columns(items.get(name), places)} missing in every row of the train split, so a model learns nothing "
            "from it. Compare `csv: {missing: ...}` with the input, or declare it `kind: ignore`."
        )
        yield _warning(name, "missing", message)
    for name, places in same.items():
        yield _warning(name, "constant", _same(items.get(name), places))


def _same(item: Item | None, places: Places) -> str:
    """The message about columns that have the same value in every row. `item`: None for images, which have no items."""
    value = f" ({next(iter(places.values()))})" if len(places) == 1 else ""
    effect, advice = "a model learns nothing from it", "This is harmless if it is expected"
    if isinstance(item, Weight):
        effect = "all rows count alike, as without it"
    elif isinstance(item, NumericLabel):
        effect, advice = "a model has nothing to learn", _COMPLETE
    elif item is not None and not _is_part(item, places):
        advice = f"{_COMPLETE}, or declare it `kind: ignore`"
    return f"{_columns(item, places)} the same in every row of the train split{value}, so {effect}. {advice}."


def _columns(item: Item | None, places: Places) -> str:
    """The beginning of a sentence: the columns and the verb, such as "2 of 5 columns ('a', 'b') are"."""
    if item is not None and _is_part(item, places):
        names = few([item.refs[place] for place in sorted(places)])
        return f"{len(places):,} of {item.width:,} columns ({names}) {'is' if len(places) == 1 else 'are'}"
    return "it is" if item is None else item.columns_are


def _is_part(item: Item, places: Places) -> bool:
    """Whether the feature has other columns besides `places`."""
    return item.by_column and len(places) < item.width


def _values_never_occur(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of categories with a list of `values` if the train split contains not a single value of the list."""
    for item in written.categories:
        summary = written.summaries.get((TRAIN_SPLIT, item.name))
        values = item.values or ()
        if summary is None or not values or not summary.count or not summary.known:
            continue
        filled = isinstance(item, Category) and item.missing in values and summary.missing
        if not filled and not summary.counts().keys() & {value.strip().encode() for value in values}:
            message = (
                f"none of its `values` ({few(values)}) occurs in the train split, so that all rows share the ids of "
                f"unknown values. Compare their spelling with that in the column {item.refs[0]!r}."
            )
            yield _warning(item.name, "values_never_occur", message)


def _column(item: Item, place: int) -> str:
    """The name of a column with a colon; '' if the feature has only one column."""
    return f"column {item.refs[place]!r}: " if item.width > 1 else ""


def _merged_numbers(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of columns with numbers so close together that different numbers become equal as float32."""
    observed = written.result.observed
    for (place, stage, name), count in sorted(observed.items()):
        left = observed.get((place, NUMBERS_LEFT, name), count)
        if stage != NUMBERS_WRITTEN or left > (1 - LOST_SHARE) * count or not isinstance(written.schema, Schema):
            continue
        item = next(item for item in written.schema.items if item.name == name)
        message = (
            f"{_column(item, int(place))}in a sample of its rows, {count:,} distinct numbers become {left:,}, since "
            "numbers are stored as float32, with 7 digits: those that differ less are the same to a model. Subtract a "
            "number near them from all of them before the job, such as the smallest, or declare it `kind: category`."
        )
        yield _warning(name, "merged_numbers", message)


def _uneven_splits(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of splits with another share of the rows than their fraction in the schema."""
    message = uneven_splits(written.schema, written.rows) if isinstance(written.schema, Schema) else None
    if message is not None:
        yield DataWarning(feature="", code="uneven_splits", message=f"{message}.")


def _one_class(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of splits where all records have the same class. Warns of eval and test only if train has more classes."""
    for column in written.features:
        if column["role"] != "label" or column["type"] != "string":
            continue
        splits = column["splits"].items()
        single = {s: d["top_values"][0]["value"] for s, d in splits if d.get("distinct") == 1 and d["count"] > 1}
        for split in [TRAIN_SPLIT] if TRAIN_SPLIT in single else single:
            effect, advice = "a model has nothing to learn", _COMPLETE
            if split != TRAIN_SPLIT:
                effect = "AUC, precision and recall say nothing there"
                advice = f"{_COMPLETE}, and that the splits are not uneven"
            message = f"the {split} split holds one class, {single[split]!r}, so {effect}. {advice}."
            yield _warning(column["name"], "one_class", message)


ALIASES = "or map one to the other with `aliases` of the label"


def _spellings(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of categories and labels with values that differ only in spelling, such as `Paris` and `paris`.

    The values of the data and the `values` of the schema are compared with each other.
    """
    for item in written.categories if written.summaries else ():
        counts = collections.Counter({value.strip().encode(): 0 for value in item.values or ()})
        for (_, name), summary in written.summaries.items():
            if name == item.name and not summary.numeric:
                counts.update(summary.counts())
        if (described := spellings.described(counts)) is not None:
            remedy = f", {ALIASES}" if isinstance(item, CategoryLabel) else ""
            yield _warning(item.name, "spellings", f"{described}. Write them alike in the files{remedy}.")


def _large_vocabulary(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of categories and labels with very many distinct values and a vocabulary without a limit."""
    train = {column["name"]: column["splits"].get(TRAIN_SPLIT, {}) for column in written.features}
    for item in written.categories:
        vocabulary, distinct = item.vocabulary, train.get(item.name, {}).get("distinct", 0)
        limited = vocabulary is None or vocabulary.top_k or vocabulary.frequency_threshold
        if limited or distinct < LARGE_VOCABULARY:
            continue
        remedy = "Set `top_k`, `frequency_threshold` or `hash_buckets` in the schema"
        if isinstance(item, CategoryLabel):
            remedy = "A label has one class for each value; check that it is the right column"
        message = (
            f"the train split has about {distinct:,} distinct values, and every worker, every training and the served "
            f"model hold all of them in memory. {remedy}."
        )
        yield _warning(item.name, "large_vocabulary", message)


def _equal_files(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of files of rows with identical contents, among the first MOST_FILES input files."""
    first: dict[str, str] = {}
    copies: list[str] = []
    rows = 0
    for file in itertools.islice((file for part in written.inputs for file in part.inputs), MOST_FILES):
        if file.digest is not None and file.read and first.setdefault(file.digest, file.path) != file.path:
            copies.append(f"{file.path} those of {first[file.digest]}")
            rows += file.read
    if copies:
        message = (
            f"input: {counted(len(copies), 'files')} with the bytes of another one: {few(copies, 3)}. Their "
            f"{counted(rows, 'records')} are in the dataset more than once; if this is not meant, leave them out."
        )
        yield DataWarning(feature="", code="equal_files", message=message)


def _drift(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of features if their drift exceeds a threshold of the schema.

    A threshold to fail above stops a job before it gets here, except for an append with --allow_drift.
    """
    for comparison in written.compared.comparisons:
        for feature in comparison.features:
            if feature.verdict in ("warn", "fail"):
                note = f". {comparison.note}" if comparison.note else ""
                message = f"{feature.excess}, {comparison.second} against {comparison.first}{note}"
                yield DataWarning(feature=feature.feature, code=DRIFT, message=message)


def _drift_of_added(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of added records that differ from the dataset although no threshold is exceeded.

    The warning names the feature that differs most. Features that differ by no more than chance are ignored.
    """
    for comparison in written.compared.comparisons:
        most = max(comparison.drifted, key=lambda feature: feature.drift, default=None)
        if most is None or comparison.verdict not in ("ok", "not_judged") or comparison.first == TRAIN_SPLIT:
            continue
        many = len(comparison.drifted)
        differ = "1 feature differs" if many == 1 else f"{many:,} features differ"
        message = f"{differ} from the dataset by more than chance explains, most of all {most.excess}"
        yield DataWarning(feature=most.feature, code=DRIFT, message=message)


def _not_compared(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns if the job could not read the dataset that it replaces, and therefore checked no threshold against it."""
    if (missed := written.compared.missed) is not None and written.schema.limits_drift:
        message = f"the schema's thresholds of drift were not checked against the dataset that is replaced: {missed}"
        yield DataWarning(feature="", code="drift_not_compared", message=message)


def _unseen_values(written: WrittenRun) -> Iterator[DataWarning]:
    """Warns of added values that are missing in a feature's vocabulary or list of values, with their number."""
    observed = {(stage, name): count for (_, stage, name), count in written.result.observed.items()}
    items = {item.name: item for item in written.schema.items} if isinstance(written.schema, Schema) else {}
    for (stage, name), unseen in sorted(observed.items()):
        if stage == UNSEEN:
            item = items[name]
            listed = "list of values" if isinstance(item, Category) and item.values is not None else "vocabulary"
            what = counted(observed[LOOKED_UP, name], "words" if isinstance(item, Text) else "values")
            yield _warning(name, UNSEEN_VALUES, f"its {listed} lacks {unseen:,} of {what} added")


CHECKS: tuple[Check, ...] = (
    _merged_numbers,
    _leakage,
    _constant,
    _values_never_occur,
    _uneven_splits,
    _one_class,
    _spellings,
    _large_vocabulary,
    _equal_files,
    _drift,
    _not_compared,
)
CHECKS_OF_ADDED: tuple[Check, ...] = (_merged_numbers, _unseen_values, _drift, _drift_of_added)
