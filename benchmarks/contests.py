"""The contests: candidates that do the same work, what they read, and what is counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from benchmarks.measure import Kind
from benchmarks.model_sets import SETS

OURS = "Millrace"
IN_MEMORY = "Millrace, all in memory"
DOWNSCALE_1 = "Millrace, downscale: 1"
TABULAR, TREES, LINEAR = "`tabular`, the default", "`boosted_trees`", "`linear`"
GRADIENT_BOOSTING, RIDGE, MLP = "HistGradientBoosting", "Ridge, LogisticRegression", "MLP"
TF_IDF = "TF-IDF + LogisticRegression"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to do the work.

    Attributes:
      name: as tables show it.
      function: `module:function` in `benchmarks.candidates`.
      source: the name of what it reads, in `benchmarks.inputs.INPUTS` or `benchmarks.model_sets.SETS`.
      bound: whether it leaves out part of the work, and so bounds how fast the work can be.
      beside: the candidate of Millrace that it is compared with.
      goal: how many times its speed that one should reach at least; None: no goal.
      options: keyword arguments of the function.
    """

    name: str
    function: str
    source: str
    _: dataclasses.KW_ONLY
    bound: bool = False
    beside: str = OURS
    goal: float | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def writes_records(self) -> bool:
        """In a contest of writing: whether its output can be read back."""
        return not self.function.endswith(":write_nothing")


@dataclasses.dataclass(frozen=True)
class Contest:
    """Candidates that do the same work.

    Attributes:
      name: as the command and the markers of the pages name it.
      group: the contests that are usually run together.
      title: as tables and plots show it.
      kind: what a candidate does: see `benchmarks.measure.BenchmarkTask`.
      unit: what is counted.
      candidates: those that take part.
      by_cpu: whether speeds are compared by CPU time, and not by wall time.
    """

    name: str
    group: Literal["rows", "photos", "reading", "scale", "models"]
    title: str
    kind: Kind
    unit: Literal["rows", "photos"]
    candidates: tuple[Candidate, ...]
    by_cpu: bool = False


WRITE_CSV, READ, READ_RAW = "millrace_jobs:write_csv", "millrace_training:read", "millrace_training:read_raw"
WRITE_PHOTOS, TF_DATA, BARE = "millrace_jobs:write_photos", "photos_tensorflow:write", "photos_tensorflow:write_nothing"
WEBDATASET, SKLEARN, TRAIN = "photos_webdataset:write", "sklearn_models:train", "millrace_training:train"
FLOOR = "the floor: pyarrow, C++ encoder and writer"
SCALED = {"scaled": True}
MEMORY: dict[str, Any] = {"in_memory": True}


def _csv(name: str, title: str) -> Contest:
    candidates = (
        Candidate(OURS, WRITE_CSV, name),
        Candidate("tf.Transform, census example", "csv_tf_transform:write", name, goal=8),
        Candidate("Python loop over tf.train.Example", "csv_plain:python_loop", name, goal=3),
        Candidate(FLOOR, "csv_plain:floor", name, bound=True),
    )
    return Contest(name, "rows", title, "write", "rows", candidates)


def _photos(name: str, title: str, *, large: bool, goal: float) -> Contest:
    """Photos of less than twice the stored size gain nothing by decoding at a scale."""
    webdataset, beside = "webdataset ShardWriter, Pillow", DOWNSCALE_1 if large else OURS
    candidates = [
        Candidate(OURS, WRITE_PHOTOS, name),
        Candidate("tf.data loop", TF_DATA, name),
        Candidate("TFDS ImageFolder, stored", "tfds_photos:write", name),
    ]
    if large:
        candidates += [
            Candidate(DOWNSCALE_1, WRITE_PHOTOS, name, options={"downscale": 1}),
            Candidate("tf.data loop, decoding at a scale", TF_DATA, name, beside=beside, options=SCALED),
            Candidate(f"{webdataset}, at twice the size", WEBDATASET, name, goal=goal, options={"downscale": 2}),
        ]
    bare = "bare decode at a scale, resize, encode" if large else "bare decode, resize, encode"
    candidates += [
        Candidate(webdataset, WEBDATASET, name, beside=beside, goal=goal),
        Candidate(bare, BARE, name, beside=beside, bound=True, options=SCALED if large else {}),
        Candidate(
            "bare decode, resize, encode, Pillow",
            "photos_pillow:write_nothing",
            name,
            beside=beside,
            bound=True,
            goal=0.8,
        ),
    ]
    return Contest(name, "photos", title, "write", "photos", tuple(candidates), by_cpu=True)


def _models(name: str) -> Contest:
    candidates = [Candidate(TABULAR, TRAIN, name), Candidate(LINEAR, TRAIN, name, options={"model": "linear"})]
    if SETS[name].text:
        candidates.append(Candidate(TF_IDF, SKLEARN, name, options={"model": "tf_idf"}))
    else:
        candidates.append(Candidate(TREES, TRAIN, name, options={"model": "boosted_trees"}))
        baselines = {GRADIENT_BOOSTING: "trees", RIDGE: "linear", MLP: "network"}
        candidates += [Candidate(b, SKLEARN, name, options={"model": model}) for b, model in baselines.items()]
    return Contest(name, "models", name, "train", "rows", tuple(candidates))


READ_ROWS = (
    Candidate(OURS, READ, "rows"),
    Candidate(IN_MEMORY, READ, "rows", options=MEMORY),
    Candidate("feed_dict, all in memory", "rows:feed_dict", "rows.csv", beside=IN_MEMORY),
    Candidate("queue runners, shuffle_batch", "rows:queue_runners", "rows"),
    Candidate("queue runners, shuffle_batch_join", "rows:queue_runners", "rows", options={"readers": 4}),
    Candidate("custom runner, RandomShuffleQueue", "rows:custom_runner", "rows.csv"),
    Candidate("custom runner, all in memory", "rows:custom_runner", "rows.csv", beside=IN_MEMORY, options=MEMORY),
    Candidate("from_generator", "rows:from_generator", "rows.csv"),
    Candidate("text lines, decode_csv", "rows:text_lines", "rows.csv"),
    Candidate("map(parse_single_example)", "rows:single_example", "rows", goal=10),
    Candidate("raw records, shuffled, not parsed", READ_RAW, "rows", bound=True, goal=0.9),
    Candidate("raw records, all in memory", READ_RAW, "rows", bound=True, beside=IN_MEMORY, goal=0.9, options=MEMORY),
)
_FILES, _TFDS = "original_photos", "stored_photos_tfds"
READ_PHOTOS = (
    Candidate(OURS, READ, "stored_photos"),
    Candidate(IN_MEMORY, READ, "stored_photos", options=MEMORY),
    Candidate("Millrace, stored raw", READ, "stored_photos_raw"),
    Candidate("tf.data, original files", "photos_tensorflow:read", _FILES, goal=4),
    Candidate(
        "tf.data, original files, no antialias", "photos_tensorflow:read", _FILES, goal=4, options={"antialias": False}
    ),
    Candidate("feed_dict", "photos_tensorflow:feed_dict", _FILES),
    Candidate("queue runners, shuffle_batch", "photos_tensorflow:queue_runners", _FILES),
    Candidate("queue runners, shuffle_batch_join", "photos_tensorflow:queue_runners", _FILES, options={"producers": 4}),
    Candidate("custom runner, RandomShuffleQueue", "photos_tensorflow:custom_runner", _FILES),
    Candidate("from_generator", "photos_tensorflow:from_generator", _FILES),
    Candidate("from_generator, of paths", "photos_tensorflow:from_generator", _FILES, options={"of_paths": True}),
    Candidate("TFDS ImageFolder", "tfds_photos:read_folder", _FILES),
    Candidate("TFDS, stored resized", "tfds_photos:read", _TFDS),
    Candidate(
        "TFDS, stored resized, all in memory",
        "tfds_photos:read",
        _TFDS,
        beside=IN_MEMORY,
        goal=0.9,
        options={"cached": True},
    ),
    Candidate("raw records, shuffled, not parsed", READ_RAW, "stored_photos", bound=True),
)
SCALE_ROWS = tuple(
    Candidate(f"{rows:,} rows, {title}", WRITE_CSV, f"covertype_{rows}", options={"num_shards": shards})
    for rows in (10_000, 100_000, 1_000_000, 6_000_000)
    for shards, title in ((1, "1 shard"), (512, "512 shards"))
)
SCALE_WORKERS = (
    Candidate(OURS, WRITE_CSV, "covertype_6000000"),
    Candidate("Millrace, --workers 1", WRITE_CSV, "covertype_6000000", goal=1.5, options={"workers": 1}),
    Candidate(FLOOR, "csv_plain:floor", "covertype_6000000", bound=True, goal=0.4),
)


CONTESTS = (
    _csv("covertype", "Covertype CSV to TFRecords"),  # a little above 64 MB
    _csv("census", "Census CSV to TFRecords, eight vocabularies"),
    _csv("mnist", "MNIST CSV (784 columns) to TFRecords"),
    _photos("photos_small", "Photos of 500 pixels to TFRecords", large=False, goal=1.15),
    _photos("photos_2mp", "Photos of 2 megapixels to TFRecords", large=True, goal=1.15),
    _photos("photos_12mp", "Photos of 12 megapixels to TFRecords", large=True, goal=1),
    Contest("read_rows", "reading", "Reading rows for training (Covertype)", "read", "rows", READ_ROWS),
    Contest(
        "read_photos",
        "reading",
        "Reading photos for training (224 x 224, cropped and mirrored)",
        "read",
        "photos",
        READ_PHOTOS,
    ),
    Contest("scale_rows", "scale", "Covertype by the number of rows and of shards", "write", "rows", SCALE_ROWS),
    Contest("scale_workers", "scale", "Covertype, 6,000,000 rows, to TFRecords", "write", "rows", SCALE_WORKERS),
    *(_models(name) for name in SETS),
)
