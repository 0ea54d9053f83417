"""The contests: candidates that do the same work, what they read, and what is counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from benchmarks.model_sets import SETS
from benchmarks.task import Kind

OURS = "Millrace"
IN_MEMORY = "Millrace, all in memory"
DOWNSCALE_1 = "Millrace, downscale: 1"
TABULAR, TREES, LINEAR = "`tabular`, the default", "`boosted_trees`", "`linear`"
GRADIENT_BOOSTING, RIDGE, MLP = "HistGradientBoosting", "Ridge, LogisticRegression", "MLP"
TF_IDF = "TF-IDF + LogisticRegression"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to do the work.

    Attributes:
      name: as tables show it.
      function: `module:function` in `benchmarks.candidates`.
      source: the name of what it reads, in `benchmarks.inputs.INPUTS` or `benchmarks.model_sets.SETS`.
      options: keyword arguments of the function.
      bound: whether it leaves out part of the work, and so bounds how fast the work can be.
      beside: the candidate of Millrace that it is compared with.
      goal: how many times its speed that one should reach at least; None: no goal.
    """

    name: str
    function: str
    source: str
    options: Mapping[str, Any]
    bound: bool
    beside: str
    goal: float | None

    @property
    def writes_records(self) -> bool:
        """In a contest of writing: whether its output can be read back."""
        return not self.function.endswith(":write_nothing")


def way(
    name: str,
    function: str,
    source: str,
    *,
    bound: bool = False,
    beside: str = OURS,
    goal: float | None = None,
    **options: Any,
) -> Candidate:
    """Returns a candidate, whose function takes the options."""
    return Candidate(
        name=name, function=function, source=source, options=options, bound=bound, beside=beside, goal=goal
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contest:
    """Candidates that do the same work.

    Attributes:
      name: as the command and the markers of the pages name it.
      group: the contests that are usually run together.
      title: as tables and plots show it.
      kind: what a candidate does: see `benchmarks.task.Task`.
      unit: what is counted.
      by_cpu: whether speeds are compared by CPU time, and not by wall time.
    """

    name: str
    group: Literal["rows", "photos", "reading", "scale", "models"]
    title: str
    kind: Kind
    unit: Literal["rows", "photos"]
    by_cpu: bool = False
    candidates: tuple[Candidate, ...]


def _csv(name: str, title: str) -> Contest:
    return Contest(
        name=name,
        group="rows",
        title=title,
        kind="write",
        unit="rows",
        candidates=(
            way(OURS, "millrace_jobs:write_csv", name),
            way("tf.Transform, census example", "csv_tf_transform:write", name, goal=8),
            way("Python loop over tf.train.Example", "csv_python_loop:write", name, goal=3),
            way("the floor: pyarrow, C++ encoder and writer", "csv_floor:write", name, bound=True),
        ),
    )


def _photos(name: str, title: str, *, large: bool, goal: float) -> Contest:
    """Photos of less than twice the stored size gain nothing by decoding at a scale."""
    webdataset, twice = "webdataset ShardWriter, Pillow", "webdataset ShardWriter, Pillow, at twice the size"
    write, bare = "photos_tf_data:write", "photos_tf_data:write_nothing"
    small = (
        way(OURS, "millrace_jobs:write_photos", name),
        way("tf.data loop", write, name),
        way("TFDS ImageFolder, stored", "tfds_photos:write", name),
    )
    more: tuple[Candidate, ...]
    if large:
        more = (
            way(DOWNSCALE_1, "millrace_jobs:write_photos", name, downscale=1),
            way("tf.data loop, decoding at a scale", write, name, beside=DOWNSCALE_1, scaled=True),
            way(twice, "photos_webdataset:write", name, downscale=2, goal=goal),
            way(webdataset, "photos_webdataset:write", name, beside=DOWNSCALE_1, goal=goal),
            way("bare decode at a scale, resize, encode", bare, name, beside=DOWNSCALE_1, bound=True, scaled=True),
        )
    else:
        more = (
            way(webdataset, "photos_webdataset:write", name, goal=goal),
            way("bare decode, resize, encode", bare, name, bound=True),
        )
    pillow = way(
        "bare decode, resize, encode, Pillow",
        "photos_pillow:write_nothing",
        name,
        beside=DOWNSCALE_1 if large else OURS,
        bound=True,
        goal=0.8,
    )
    candidates = (*small, *more, pillow)
    return Contest(
        name=name, group="photos", title=title, kind="write", unit="photos", by_cpu=True, candidates=candidates
    )


def _models(name: str) -> Contest:
    baselines: tuple[Candidate, ...]
    if SETS[name].text:
        baselines = (way(TF_IDF, "sklearn_models:train", name, model="tf_idf"),)
    else:
        baselines = (
            way(TREES, "millrace_training:train", name, model="boosted_trees"),
            way(GRADIENT_BOOSTING, "sklearn_models:train", name, model="trees"),
            way(RIDGE, "sklearn_models:train", name, model="linear"),
            way(MLP, "sklearn_models:train", name, model="network"),
        )
    ours = (
        way(TABULAR, "millrace_training:train", name),
        way(LINEAR, "millrace_training:train", name, model="linear"),
    )
    return Contest(name=name, group="models", title=name, kind="train", unit="rows", candidates=(*ours, *baselines))


READ_ROWS = (
    way(OURS, "millrace_reading:read", "rows"),
    way(IN_MEMORY, "millrace_reading:read", "rows", in_memory=True),
    way("feed_dict, all in memory", "rows_tf1:feed_dict", "rows.csv", beside=IN_MEMORY),
    way("queue runners, shuffle_batch", "rows_tf1:queue_runners", "rows"),
    way("queue runners, shuffle_batch_join", "rows_tf1:queue_runners", "rows", readers=4),
    way("custom runner, RandomShuffleQueue", "rows_tf1:custom_runner", "rows.csv"),
    way("custom runner, all in memory", "rows_tf1:custom_runner", "rows.csv", beside=IN_MEMORY, in_memory=True),
    way("from_generator", "rows_tf_data:from_generator", "rows.csv"),
    way("text lines, decode_csv", "rows_tf_data:text_lines", "rows.csv"),
    way("map(parse_single_example)", "rows_tf_data:single_example", "rows", goal=10),
    way("raw records, shuffled, not parsed", "millrace_reading:read_raw", "rows", bound=True, goal=0.9),
    way(
        "raw records, all in memory",
        "millrace_reading:read_raw",
        "rows",
        bound=True,
        beside=IN_MEMORY,
        goal=0.9,
        in_memory=True,
    ),
)
READ_PHOTOS = (
    way(OURS, "millrace_reading:read", "stored_photos"),
    way(IN_MEMORY, "millrace_reading:read", "stored_photos", in_memory=True),
    way("Millrace, stored raw", "millrace_reading:read", "stored_photos_raw"),
    way("tf.data, original files", "photos_tf_data:read", "original_photos", goal=4),
    way("tf.data, original files, no antialias", "photos_tf_data:read", "original_photos", goal=4, antialias=False),
    way("feed_dict", "photos_tf1:feed_dict", "original_photos"),
    way("queue runners, shuffle_batch", "photos_tf1:queue_runners", "original_photos"),
    way("queue runners, shuffle_batch_join", "photos_tf1:queue_runners", "original_photos", producers=4),
    way("custom runner, RandomShuffleQueue", "photos_tf1:custom_runner", "original_photos"),
    way("from_generator", "photos_tf1:from_generator", "original_photos"),
    way("from_generator, of paths", "photos_tf1:from_generator", "original_photos", of_paths=True),
    way("TFDS ImageFolder", "tfds_photos:read_folder", "original_photos"),
    way("TFDS, stored resized", "tfds_photos:read", "stored_photos_tfds"),
    way(
        "TFDS, stored resized, all in memory",
        "tfds_photos:read",
        "stored_photos_tfds",
        beside=IN_MEMORY,
        goal=0.9,
        cached=True,
    ),
    way("raw records, shuffled, not parsed", "millrace_reading:read_raw", "stored_photos", bound=True),
)
SCALE_ROWS = tuple(
    way(f"{rows:,} rows, {title}", "millrace_jobs:write_csv", f"covertype_{rows}", num_shards=shards)
    for rows in (10_000, 100_000, 1_000_000, 6_000_000)
    for shards, title in ((1, "1 shard"), (512, "512 shards"))
)
SCALE_WORKERS = (
    way(OURS, "millrace_jobs:write_csv", "covertype_6000000"),
    way("Millrace, --workers 1", "millrace_jobs:write_csv", "covertype_6000000", goal=1.5, workers=1),
    way("the floor: pyarrow, C++ encoder and writer", "csv_floor:write", "covertype_6000000", bound=True, goal=0.4),
)


CONTESTS = (
    _csv("covertype", "Covertype CSV to TFRecords"),  # a little above 64 MB
    _csv("census", "Census CSV to TFRecords, eight vocabularies"),
    _csv("mnist", "MNIST CSV (784 columns) to TFRecords"),
    _photos("photos_small", "Photos of 500 pixels to TFRecords", large=False, goal=1.15),
    _photos("photos_2mp", "Photos of 2 megapixels to TFRecords", large=True, goal=1.15),
    _photos("photos_12mp", "Photos of 12 megapixels to TFRecords", large=True, goal=1),
    Contest(
        name="read_rows",
        group="reading",
        title="Reading rows for training (Covertype)",
        kind="read",
        unit="rows",
        candidates=READ_ROWS,
    ),
    Contest(
        name="read_photos",
        group="reading",
        title="Reading photos for training (224 x 224, cropped and mirrored)",
        kind="read",
        unit="photos",
        candidates=READ_PHOTOS,
    ),
    Contest(
        name="scale_rows",
        group="scale",
        title="Covertype by the number of rows and of shards",
        kind="write",
        unit="rows",
        candidates=SCALE_ROWS,
    ),
    Contest(
        name="scale_workers",
        group="scale",
        title="Covertype, 6,000,000 rows, to TFRecords",
        kind="write",
        unit="rows",
        candidates=SCALE_WORKERS,
    ),
    *(_models(name) for name in SETS),
)
