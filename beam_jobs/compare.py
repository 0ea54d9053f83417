"""`python -m beam_jobs.compare A [B ...]`: compares a dataset's splits, two datasets, or a dataset and raw files."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schemas import command, storage
from schemas.csv.stream import MAX_INPUT_RATIO
from schemas.display import ReadingDisplay
from schemas.errors import UsageError, counted
from schemas.options import QUIET_HELP, Options, option, positive_finite

if TYPE_CHECKING:
    from beam_jobs.raw_files import RawContents
    from schemas.comparison import Comparison, Sample
    from schemas.dataset import OpenDataset
    from schemas.spec.forms import Limits

PROG = "python -m beam_jobs.compare"
SCALE = (
    "distance   0 where values are alike, 1 where they have nothing in common; one up to `noise` can be chance alone"
)
SAMPLE_ROWS, SAMPLE_IMAGES = 100_000, 2_000

_DESCRIPTION = """\
Compares a dataset with another one, or with raw files: how far the values of each feature and of the label differ,
how the share of missing values changes, which values are new, and which ranges are wider. With a dataset alone, its
train split is compared with the others.
"""

_EPILOG = """\
examples:
  %(prog)s out/                                    # train against eval and test
  %(prog)s out/ newer/                             # two datasets
  %(prog)s out/ 'served/*.csv' --html drift.html   # a dataset, and what was served

Raw files are read by the dataset's own schema. They may lack the label, the weight and the key, and have other columns.

distance   from 0 (alike) to 1 (nothing in common), of the values that are not missing. Of texts and categories it is
           the greatest difference between the shares of one value (L-infinity); of numbers it compares the shares of
           about ten ranges (the Jensen-Shannon divergence). TensorFlow Data Validation has the same two.
noise      the largest distance that chance alone explains (with 99 % confidence for all features together). A
           threshold is exceeded by a distance, or a change of the missing share, that is above it and above the noise.

Thresholds stand in the schema (`drift: 0.1`, `drift: {warn: 0.05, fail: 0.2}`; docs/compare.md), or come with --drift.
Without one nothing is judged, and the last line says so.
Exit codes: 0 no threshold to fail above is exceeded, 1 one is (or the comparison failed), 2 invalid usage.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """The options of a comparison."""

    dataset: str = option("a dataset directory: what is compared with", positional=True, metavar="A")
    other: tuple[str, ...] = option(
        "another dataset directory, or raw files: paths or globs, local or gs://; images in folders of their classes",
        (),
        positional=True,
        metavar="B",
    )
    split: str = option("the split of datasets (default: %(default)s)", "train", metavar="NAME")
    feature: tuple[str, ...] = option("compare only these", (), metavar="NAME")
    sample: bool = option("read about 100,000 rows from all over the files, or 2,000 images", False)
    drift: float | None = option("a threshold to fail above, for features without one in the schema", None, metavar="D")
    all: bool = option("show all features, not the most drifted ones alone", False)
    html: str | None = option("write a page with pictures; it loads nothing from elsewhere", None, metavar="FILE")
    overwrite: bool = option("replace an existing page", False)
    max_input_ratio: float = option(
        "refuse a gzip'd file that decompresses to more than this many times its size (default: %(default)g)",
        MAX_INPUT_RATIO,
        metavar="F",
        check=positive_finite,
    )
    quiet: bool = option(QUIET_HELP, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drift is not None and not 0 < self.drift <= 1:
            raise UsageError(f"--drift {self.drift:g}: must be more than 0 and at most 1")
        if self.html is not None:
            storage.check_scheme(self.html, "--html ")
            storage.check_output(self.html, overwrite=self.overwrite)
            storage.check_apart(self.other, self.html, flag="--html")
        elif self.overwrite:
            raise UsageError("--overwrite is for --html FILE")


def _run(options: CompareOptions, prog: str) -> command.Report:
    """Reads both sides, compares them, and reports the comparisons; exit code 1 if drift exceeds a threshold."""
    from schemas.comparison import render, stored_samples
    from schemas.dataset import open_dataset

    paths = options.other
    dataset_follows = len(paths) == 1 and _is_dataset(paths[0])
    if dataset_follows and not _is_dataset(options.dataset):
        path = options.dataset
        raise UsageError(f"{path}: is no dataset directory; the dataset comes first: {prog} {paths[0]} {path}")
    dataset = open_dataset(options.dataset)
    splits = stored_samples(dataset.path, dataset.manifest)
    _split(splits, options.split, dataset.path)
    raw = _read(options, dataset) if paths and not dataset_follows else None
    comparisons = _comparisons(options, dataset, splits, raw)
    lines: list[str] = []
    for comparison in comparisons:
        lines += ["", *render(comparison, every=options.all)]
    lines += ["", SCALE, *(_reading(raw, dataset) if raw is not None else ())]
    as_json = [comparison.as_json() for comparison in comparisons]
    data: dict[str, Any] = {"comparisons": as_json, "html": options.html}
    if options.html is not None:
        from schemas.report import data_report

        page = data_report.page(f"{dataset.manifest.name}: what differs", as_json)
        storage.write_bytes(options.html, page.encode())
        lines.append(f"page       {options.html}")
    if raw is not None:
        names = "files", "read", "rejected", "complete", "lacks"
        data["raw"] = {name: getattr(raw, name) for name in names}
    failed = any(comparison.verdict == "fail" for comparison in comparisons)
    return command.Report("\n".join(lines[1:]), data, exit_code=1 if failed else 0, only_printed=True)


def _is_dataset(path: str) -> bool:
    """Whether the folder holds a manifest."""
    from schemas.dataset import layout

    return storage.exists(layout.join(path, layout.MANIFEST))


def _comparisons(
    options: CompareOptions, dataset: OpenDataset, splits: dict[str, Sample], raw: RawContents | None
) -> list[Comparison]:
    """Makes the comparisons.

    Compares the chosen split with the dataset's other splits if the dataset is given alone, or else with the raw files,
    or with the same split of the other dataset.

    Args:
      options: the options.
      dataset: the dataset.
      splits: the statistics of the dataset's splits.
      raw: the contents of the raw files; None: there are no raw files.
    """
    from schemas.comparison import of_groups, stored_samples
    from schemas.dataset import open_dataset

    first = splits[options.split]
    if not options.other:
        rest = {name: sample for name, sample in splits.items() if name != options.split}
        if not rest:
            raise UsageError(f"{dataset.path}: has the split {options.split} alone; give what to compare it with")
        pairs = [_pair(options, dataset, first, sample, (options.split, name)) for name, sample in rest.items()]
        return [of_groups(pair, dataset.declared) for pair in pairs]
    if raw is not None and raw.sample is not None:
        second = raw.sample
        first = _without(first, [name for name, column in first.columns.items() if column.feature in raw.lacks])
    elif options.sample:
        raise UsageError("--sample is for raw files; the statistics of datasets are there already")
    else:
        other = open_dataset(options.other[0])
        second = _split(stored_samples(other.path, other.manifest), options.split, other.path)
    name = " ".join(options.other[:3]) + (" ..." if len(options.other) > 3 else "")
    return [_pair(options, dataset, first, second, (dataset.path, name))]


def _split(samples: dict[str, Sample], split: str, path: str) -> Sample:
    """Returns the statistics of a split. Raises UsageError if the dataset at `path` has no such split."""
    if split not in samples:
        raise UsageError(f"--split {split}: is no split of {path}; it has {', '.join(samples)}")
    return samples[split]


def _without(sample: Sample, names: Sequence[str]) -> Sample:
    """Returns the statistics without the columns `names`."""
    return dataclasses.replace(sample, columns={n: c for n, c in sample.columns.items() if n not in names})


def _pair(
    options: CompareOptions, dataset: OpenDataset, first: Sample, second: Sample, names: tuple[str, str]
) -> Comparison:
    """Compares two sides, with the features of --feature only, if given. `names`: the sides' names in messages."""
    from schemas.comparison import as_meant, compare
    from schemas.spec.forms import Limits

    if not first.columns.keys() & second.columns.keys():
        raise UsageError(f"{names[1]}: has no feature in common with {names[0]}, so there is nothing to compare")
    chosen = set(options.feature)
    features = {part for column in first.columns.values() for part in (column.name, column.feature)}
    for name in options.feature:
        if name not in features:
            raise UsageError(f"--feature {name}: is no feature of {names[0]}; there are {', '.join(sorted(features))}")
    if chosen:
        first, second = (
            _without(side, [name for name, column in side.columns.items() if not {name, column.feature} & chosen])
            for side in (first, second)
        )

    def limits(feature: str) -> Limits | None:
        """The thresholds of a feature: those of the schema, or else --drift; None without either."""
        declared = dataset.declared.drift_limits(feature)
        return Limits(fail=options.drift) if declared is None and options.drift is not None else declared

    first, second = (as_meant(side, dataset.declared) for side in (first, second))
    return compare(first, second, limits, names=names)


def _read(options: CompareOptions, dataset: OpenDataset) -> RawContents:
    """Reads the raw files by the dataset's schema, all of them or a sample, and shows the progress."""
    from beam_jobs.raw_files import read_rows
    from schemas.spec.table import Schema

    schema = dataset.declared
    rows = isinstance(schema, Schema)
    paths = storage.expand(_patterns(options.other, rows=rows))
    with ReadingDisplay(quiet=options.quiet, what="records" if rows else "images") as display:
        if isinstance(schema, Schema):
            storage.check_names(paths)
            sample = SAMPLE_ROWS if options.sample else None
            return read_rows(paths, schema, max_input_ratio=options.max_input_ratio, sample=sample, progress=display)
        from beam_jobs.runs.run import load_libraries

        load_libraries()
        from beam_jobs.raw_files import read_images

        classes = dataset.manifest.classes
        return read_images(paths, schema, classes, sample=SAMPLE_IMAGES if options.sample else None, progress=display)


def _patterns(paths: Sequence[str], *, rows: bool) -> list[str]:
    """Returns the paths. A folder of images becomes a pattern for the images in its subfolders."""
    folders = [path for path in paths if storage.is_local(path) and os.path.isdir(path)]
    if rows and folders:
        raise UsageError(
            f"{folders[0]}: is a folder, and no dataset directory (it has no manifest.json); give its files, such as "
            f"'{os.path.join(folders[0], '*.csv')}'"
        )
    return [os.path.join(path, "*", "*") if path in folders else path for path in paths]


def _reading(raw: RawContents, dataset: OpenDataset) -> list[str]:
    """Describes the raw files in some lines: the number of records, the rejects by reason, and the missing columns."""
    records = dataset.declared.records
    rejected = sum(raw.rejected.values())
    note = "" if raw.complete else ", a sample of them"
    lines = [f"read       {counted(raw.read, records)} from {counted(raw.files, 'files')}{note}; {rejected:,} rejected"]
    for reason, count in raw.rejected.most_common():
        source, offset, detail = raw.examples[reason]
        lines.append(f"  {reason:<24} {count:>,}, such as {source} at {offset:,}: {detail}")
    if raw.lacks:
        lines.append(f"no column  {', '.join(raw.lacks)}")
    return lines


COMMAND = command.Command(prog=PROG, options=CompareOptions, work=_run, description=_DESCRIPTION, epilog=_EPILOG)
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
