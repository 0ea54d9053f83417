"""What a job says of its data: drift between splits and datasets, columns that tell nothing, values never seen."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_jobs.core.accounting import WRITTEN
from beam_jobs.records.accounts import Unfit
from beam_jobs.records.result import Result
from beam_jobs.transform.observed import (
    BUCKETS,
    NUMBERS_LEFT,
    NUMBERS_WRITTEN,
    SAME,
    UNKNOWN,
    quantile_buckets,
)
from beam_jobs.transform.vocabularies import LOOKED_UP, UNSEEN
from schemas import storage
from schemas.comparison import Comparison, Sample, as_meant, compare, of_groups, stored_samples
from schemas.dataset import Dataset, layout, read_checked
from schemas.dataset.manifest import DataWarning, InputPart
from schemas.errors import MillraceError, counted, few
from schemas.profile import spellings
from schemas.profile.statistics import Statistics, samples_of
from schemas.spec import images as keys
from schemas.spec.features import Category, CategoryLabel, Item, NumericLabel, Text, Weight
from schemas.spec.loader import AnySchema
from schemas.spec.split_shares import uneven_splits
from schemas.spec.table import SPLITS, Schema
from schemas.storage import folders
from schemas.storage.json_files import as_written, read_if_there

TRAIN_SPLIT = SPLITS[0]
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Compared:
    """What a job compared.

    Attributes:
      comparisons: of its splits, and with the dataset that it replaces or was told to compare with.
      missed: why the dataset that it replaces was not compared with; None if it was, or if there is none.
    """

    comparisons: tuple[Comparison, ...] = ()
    missed: str | None = None


def compare_job(statistics: Statistics, schema: AnySchema, *, output: str, compare_to: str | None) -> Compared:
    """Compares what a job has written, before its commit.

    Args:
      statistics: of the written records.
      schema: with the thresholds.
      output: the dataset's folder. If it holds a dataset with statistics, this is what the job's is compared with.
      compare_to: another dataset to compare it with instead.

    Raises:
      MillraceError: the dataset `compare_to` cannot be read.
    """
    missed = None

    try:
        earlier = _samples_of(compare_to) if compare_to is not None else _replaced(output)
    except MillraceError as error:
        if compare_to is not None:
            raise
        earlier, missed = None, str(error)  # it may be replaced because it is broken
    return Compared(of_splits(statistics, schema, earlier), missed)


def of_splits(
    statistics: Statistics, schema: AnySchema, earlier: tuple[str, Mapping[str, Sample]] | None = None
) -> tuple[Comparison, ...]:
    """The train split against each other one, and with that of an earlier dataset, which comes with its name."""
    splits = {split: as_meant(sample, schema) for split, sample in samples_of(statistics).items()}
    train = splits.pop(TRAIN_SPLIT, None)
    if train is None:
        return ()
    pairs = [(train, splits[split], (TRAIN_SPLIT, split)) for split in SPLITS if split in splits]
    if earlier is not None and TRAIN_SPLIT in earlier[1]:
        pairs.append((as_meant(earlier[1][TRAIN_SPLIT], schema), train, (earlier[0], f"the new {TRAIN_SPLIT}")))
    found = [compare(first, second, schema.drift_limits, names=names) for first, second, names in pairs]
    return tuple(of_groups(each, schema) if each.first == TRAIN_SPLIT else each for each in found)


def _samples_of(data_dir: str) -> tuple[str, dict[str, Sample]]:
    """What a dataset is called here, and its splits."""
    manifest = read_checked(data_dir)
    return f"{TRAIN_SPLIT} of {data_dir}, run {manifest.run}", stored_samples(data_dir, manifest)


def _replaced(output: str) -> tuple[str, dict[str, Sample]] | None:
    """The dataset that is replaced; None if there is none.

    Raises:
      MillraceError: it has no statistics that this release can read.
    """
    return _samples_of(output) if storage.exists(layout.join(output, layout.MANIFEST)) else None


def check_drift(found: Compared) -> None:
    """Checks that no threshold to fail above is exceeded.

    Raises:
      Unfit: one is; the message names the features.
    """
    failed = [one for one in found.comparisons if one.verdict == "fail"]
    if failed:
        told = "; ".join(f"{one.second} against {one.first}: {one.told.removeprefix('FAIL: ')}" for one in failed)
        raise Unfit(
            f"the data has drifted: {told}. Nothing was committed, and an earlier dataset stays as it was. If this is "
            "expected, set `drift` in the schema higher, or to {warn: ...} (docs/compare.md); an append "
            "takes --allow_drift"
        )


def unchecked_drift(found: Compared, schema: AnySchema) -> Iterator[DataWarning]:
    """A warning if the schema's thresholds could not be checked against the dataset that is replaced."""
    if found.missed is not None and schema.limits_drift:
        message = (
            f"the schema's thresholds of drift were not checked against the dataset that is replaced: {found.missed}"
        )
        yield DataWarning(feature="", code="drift_not_compared", message=message)


def drift_warnings(comparisons: Sequence[Comparison]) -> Iterator[DataWarning]:
    """A warning for each feature that exceeds its threshold to warn above."""
    for found in comparisons:
        for feature in found.features:
            if feature.verdict == "warn":
                note = f". {found.note}" if found.note else ""
                message = f"{feature.excess}, {found.second} against {found.first}{note}"
                yield DataWarning(feature=feature.feature, code="drift", message=message)


def place_drift(run_dir: str, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Writes the comparisons to a run, if there are any. Processes that commit the same run write the same bytes.

    Returns:
      The comparisons as JSON has them.
    """
    found = [comparison.as_json() for comparison in comparisons]
    if found:
        data = {"format_version": FORMAT_VERSION, "comparisons": found}
        folders.create(layout.join(run_dir, layout.DRIFT), json.dumps(data, allow_nan=False).encode() + b"\n")
    return found


def read_drift(run_dir: str) -> list[dict[str, Any]]:
    """The comparisons of a run, as JSON has them; none if it has none."""
    path = layout.join(run_dir, layout.DRIFT)
    found = read_if_there(path, "how the splits differ")
    with as_written(path, "how the splits differ"):
        return [] if found is None else list(found["comparisons"])


UNSEEN_VALUES, DRIFT = "unseen_values", "drift"  # the codes of warnings about added records

Places = Mapping[int, str]  # index among a feature's columns -> value


def find_warnings(
    result: Result, schema: Schema | None, *, classes: Sequence[str], statistics: Mapping[str, Any] | None
) -> Iterator[DataWarning]:
    """Derives warnings from the counts of a complete job.

    Args:
      result: the result of the job.
      schema: the schema that the transform is derived from; None for images and for a user's preprocessing_fn.
      classes: the classes of an image dataset.
      statistics: of the raw columns, as `schemas.dataset.statistics.read_statistics` returns them; None: not known.
    """
    varying = _varying(statistics) if statistics is not None else frozenset()
    items = {} if schema is None else {item.name: item for item in schema.items}
    written = result.total(WRITTEN, reason="train")
    missing, same = _absent(statistics) if statistics is not None else {}, _everywhere(result, SAME, written)
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
            if item is not None and (name in varying or any(f"{name}[{item.refs[p]}]" in varying for p in places)):
                yield _warning(name, "constant", _made_constant(item, places))
            else:
                yield _warning(name, "constant", _constant(item, places))


ALIASES = "or map one to the other with `aliases` of the label"


def other_spellings(statistics: Statistics, schema: AnySchema) -> Iterator[DataWarning]:
    """Warns of categories and labels with values that differ in spelling only, from each other or from listed ones."""
    if not isinstance(schema, Schema):
        return
    for item in schema.items:
        if not isinstance(item, Category | CategoryLabel):
            continue
        counts = collections.Counter({value.strip().encode(): 0 for value in item.values or ()})
        for (_, name), summary in statistics.summaries.items():
            if name == item.name and not summary.numeric:
                counts.update(summary.counts())
        if (described := spellings.described(counts)) is not None:
            remedy = f", {ALIASES}" if isinstance(item, CategoryLabel) else ""
            yield _warning(item.name, "spellings", f"{described}. Write them alike in the files{remedy}.")


LARGE_VOCABULARY = 1_000_000  # words, from which on a job warns


def large_vocabularies(statistics: Statistics, schema: AnySchema) -> Iterator[DataWarning]:
    """Warns of categories and labels whose vocabulary has no limit, and very many words."""
    if not isinstance(schema, Schema):
        return
    for item in schema.items:
        vocabulary = item.vocabulary if isinstance(item, Category | CategoryLabel) else None
        if vocabulary is None or vocabulary.top_k or vocabulary.frequency_threshold:
            continue
        summary = statistics.summaries.get(("train", item.name))
        if summary is not None and summary.distinct >= LARGE_VOCABULARY:
            remedy = "Set `top_k`, `frequency_threshold` or `hash_buckets` in the schema"
            if isinstance(item, CategoryLabel):
                remedy = "A label has one class for each value; check that it is the right column"
            message = (
                f"the train split has about {summary.distinct:,} distinct values, and every worker, every training "
                f"and the served model hold all of them in memory. {remedy}."
            )
            yield _warning(item.name, "large_vocabulary", message)


MOST_FILES = 100_000  # that are compared with each other


def equal_files(parts: Iterable[InputPart]) -> Iterator[DataWarning]:
    """Warns of files of rows that hold the same bytes, among the first MOST_FILES inputs."""
    first: dict[str, str] = {}
    copies: list[tuple[str, str]] = []
    rows = 0
    for file in itertools.islice((file for part in parts for file in part.inputs), MOST_FILES):
        if file.digest is not None and file.read and first.setdefault(file.digest, file.path) != file.path:
            copies.append((first[file.digest], file.path))
            rows += file.read
    if copies:
        pairs = few([f"{path} those of {earlier}" for earlier, path in copies], 3)
        message = (
            f"input: {counted(len(copies), 'files')} with the bytes of another one: {pairs}. Their "
            f"{counted(rows, 'records')} are in the dataset more than once; if this is not meant, leave them out."
        )
        yield DataWarning(feature="", code="equal_files", message=message)


LOST_SHARE = 0.01  # of the distinct numbers of a column, from which on a job warns


def merged_numbers(result: Result, schema: AnySchema) -> Iterator[DataWarning]:
    """Warns of columns of numbers that are too close to each other for a float32."""
    if not isinstance(schema, Schema):
        return
    for (place, stage, name), written in sorted(result.observed.items()):
        left = result.observed.get((place, NUMBERS_LEFT, name), written)
        if stage != NUMBERS_WRITTEN or left > (1 - LOST_SHARE) * written:
            continue
        item = next(item for item in schema.items if item.name == name)
        column = f"column {item.refs[int(place)]!r}: " if item.width > 1 else ""
        message = (
            f"{column}in a sample of its rows, {written:,} distinct numbers become {left:,}, since numbers are stored "
            "as float32, with 7 digits: those that differ less are the same to a model. Subtract a number near them "
            "from all of them before the job, such as the smallest, or declare it `kind: category`."
        )
        yield _warning(name, "merged_numbers", message)


def fewer_buckets(result: Result, schema: Schema, statistics: Mapping[str, Any] | None) -> Iterator[DataWarning]:
    """Warns of columns that fill fewer buckets than `{bucketize: n}` asks for, but of one: those are constant."""
    filled = collections.Counter((name, int(at.split()[0])) for at, stage, name in result.observed if stage == BUCKETS)
    train = {} if statistics is None else {c["name"]: c["splits"].get(TRAIN_SPLIT, {}) for c in statistics["features"]}
    buckets = quantile_buckets(schema)
    for (name, place), count in sorted(filled.items()):
        item, asked = buckets[name]
        if not 1 < count < asked:
            continue
        column = f"column {item.refs[place]!r}: " if item.width > 1 else ""
        distinct = train.get(f"{name}[{item.refs[place]}]" if item.width > 1 else name, {}).get("distinct", asked)
        since = "numbers of many rows are a bucket of their own, and equal numbers are in one bucket"
        if distinct < asked:
            since = f"the column has {distinct:,} distinct numbers"
        message = f"{column}`bucketize: {asked}` makes {count:,} buckets, since in the train split {since}."
        yield _warning(
            name, "fewer_buckets", f"{message} The other ids stay unused. This is harmless if it is expected."
        )


def uneven(schema: AnySchema, rows: Mapping[str, int]) -> Iterator[DataWarning]:
    """Warns of splits that have other shares of the rows than the schema gives them. `rows`: of each split."""
    if isinstance(schema, Schema) and (message := uneven_splits(schema, rows)) is not None:
        yield DataWarning(feature="", code="uneven_splits", message=f"{message}.")


def one_class_elsewhere(statistics: Mapping[str, Any]) -> Iterator[DataWarning]:
    """Warns of splits other than train whose records are of one class, while those of train are not.

    `statistics`: as `schemas.dataset.statistics.read_statistics` returns them.
    """
    for item in statistics["features"]:
        splits = item["splits"]
        if item["role"] == "label" and item["type"] == "string" and splits.get("train", {}).get("distinct", 1) > 1:
            for split, found in splits.items():
                if split != "train" and found.get("distinct") == 1 and found["count"] > 1:
                    value = found["top_values"][0]["value"]
                    message = (
                        f"the {split} split holds one class, {value!r}, so AUC, precision and recall say nothing "
                        "there. Check that the input is complete, and that the splits are not uneven."
                    )
                    yield _warning(item["name"], "one_class", message)


def _varying(statistics: Mapping[str, Any]) -> frozenset[str]:
    """The raw columns that hold several values in the train split."""
    columns = statistics["features"]
    return frozenset(c["name"] for c in columns if c["splits"].get(TRAIN_SPLIT, {}).get("distinct", 1) > 1)


def _absent(statistics: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    """By feature, the places of the raw columns without any value in the train split; none if that has one row."""
    places: collections.Counter[str] = collections.Counter()
    absent: dict[str, dict[int, str]] = {}
    for column in statistics["features"]:
        described = column["splits"].get(TRAIN_SPLIT, {"count": 0, "missing": 0})
        if (
            column["role"] == "feature"
            and column["kind"] != "image"
            and not described["count"]
            and described["missing"] > 1
        ):
            absent.setdefault(column["feature"], {})[places[column["feature"]]] = ""
        places[column["feature"]] += 1
    return absent


def _everywhere(result: Result, stage: str, rows: int) -> dict[str, dict[int, str]]:
    """By feature, the places that a stage counted in all rows, with their values; none if there is a single row."""
    found: dict[str, dict[int, str]] = {}
    for (what, at, name), n in result.observed.items():
        if at == stage and n == rows > 1:
            place, _, value = what.partition(" ")
            found.setdefault(name, {})[int(place)] = value
    return found


def _warning(name: str, code: str, message: str) -> DataWarning:
    return DataWarning(feature=name, code=code, message=f"{name}: {message}")


def _unknown(item: Item) -> str:
    return (
        f"none of its `values` ({few(item.listed or ())}) occurs in the train split, so that all rows share the ids "
        f"of unknown values. Compare their spelling with that in the column {item.refs[0]!r}."
    )


def _missing(item: Item | None, places: Places) -> str:
    return (
        f"{_columns(item, places)} missing in every row of the train split, so a model learns nothing from it. "
        "Compare `csv: {missing: ...}` with the input, or declare it `kind: ignore`."
    )


def _one_class(name: str | None) -> str:
    found = "" if name is None else f", {name!r}"
    return f"the train split holds one class{found}, so a model has nothing to learn. Check that the input is complete."


def _constant(item: Item | None, places: Places) -> str:
    value = f" (stored as {places[0]})" if list(places) == [0] else ""
    same = f"{_columns(item, places)} the same in every row of the train split{value}"
    if isinstance(item, Weight):
        return f"{same}, so that all rows count alike, as without it. This is harmless if it is expected."
    if isinstance(item, NumericLabel):
        return f"{same}, so a model has nothing to learn. Check that the input is complete."
    advice = "This is harmless if it is expected"
    if item is not None and not _is_part(item, places):
        advice = "Check that the input is complete, or declare it `kind: ignore`"
    return f"{same}, so a model learns nothing from it. {advice}."


_NOT_SETTINGS = frozenset({"name", "column", "columns", "kind", "missing", "indicator", "drift"})


def _made_constant(item: Item, places: Places) -> str:
    """A column that varies, of which the schema makes the same in every row."""
    settings = item.model_dump(mode="json", include=item.model_fields_set - _NOT_SETTINGS)
    declared = ", ".join(f"{key}: {json.dumps(value)}".replace('"', "") for key, value in settings.items())
    made_by = f"`{declared}`" if declared else f"`kind: {getattr(item, 'kind', '')}`"
    value = f" (stored as {places[0]})" if list(places) == [0] else ""
    return (
        f"{_columns(item, places)} the same in every row of the train split{value} after {made_by}, although the "
        "values in the files differ, so a model learns nothing from it. Choose another transform."
    )


def _columns(item: Item | None, places: Places) -> str:
    """The columns, and the verb."""
    if item is not None and _is_part(item, places):
        refs = item.refs
        names = few([refs[place] for place in sorted(places)])
        return f"{len(places):,} of {item.width:,} columns ({names}) {'is' if len(places) == 1 else 'are'}"
    if item is None and len(places) > 1:
        return f"the values at {few(sorted(places))} are"
    return "it is" if item is None else item.columns_are


def _is_part(item: Item, places: Places) -> bool:
    """Whether the feature has more columns than these."""
    return item.by_column and len(places) < item.width


def warnings_of_added(result: Result, base: Dataset, comparisons: Sequence[Comparison]) -> Iterator[DataWarning]:
    """What is to be said of the records that a run adds.

    Args:
      result: the result of the run's pipeline.
      base: the dataset before.
      comparisons: of the added records, with the dataset and of their splits.
    """
    yield from unseen_values(result, base)
    yield from drifted(comparisons)


def drifted(comparisons: Sequence[Comparison]) -> Iterator[DataWarning]:
    """Features that exceed a threshold, and else the one that differs most from the dataset, if any truly does."""
    yield from drift_warnings(comparisons)
    for found in comparisons:
        for feature in found.features:
            if feature.verdict == "fail":  # allowed, or the run would not have come so far
                yield DataWarning(
                    feature=feature.feature,
                    code=DRIFT,
                    message=f"{feature.excess}, {found.second} against {found.first}",
                )
        most = max(found.drifted, key=lambda feature: feature.drift, default=None)
        if most is not None and found.verdict in ("ok", "not_judged") and found.first != SPLITS[0]:
            many = len(found.drifted)
            differ = "1 feature differs" if many == 1 else f"{many:,} features differ"
            told = f"{differ} from the dataset by more than chance explains, most of all {most.excess}"
            yield DataWarning(feature=most.feature, code=DRIFT, message=told)


def unseen_values(result: Result, base: Dataset) -> Iterator[DataWarning]:
    """How many values of each feature its vocabulary, or its list of values, lacks."""
    observed = {(stage, name): n for (_, stage, name), n in result.observed.items() if stage in (LOOKED_UP, UNSEEN)}
    for (stage, name), unseen in sorted(observed.items()):
        if stage != UNSEEN:
            continue
        feature = next(feature for feature in base.schema.features if feature.name == name)
        listed = "list of values" if isinstance(feature, Category) and feature.values is not None else "vocabulary"
        what = "words" if isinstance(feature, Text) else "values"
        told = f"its {listed} lacks {unseen:,} of {counted(observed[LOOKED_UP, name], what)} added"
        yield DataWarning(feature=name, code=UNSEEN_VALUES, message=f"{name}: {told}")
