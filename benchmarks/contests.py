"""The contests: ways to do the same work on the same input, which are measured in turn."""

from __future__ import annotations

import dataclasses
from typing import Literal

OURS = "Millrace"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One way to do the work.

    Attributes:
      name: as tables show it.
      does: `module:function`; see `benchmarks.task`.
      source: the name of what it reads; see `benchmarks.sources`.
      bound: whether it leaves out part of the work, and so bounds how fast the work can be.
    """

    name: str
    does: str
    source: str
    bound: bool = False

    @property
    def writes(self) -> bool:
        """In a contest of writing: whether its output can be read back."""
        return not self.does.partition(":")[2].startswith("write_nothing")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contest:
    """Ways to do the same work; the first is this project's.

    Attributes:
      kind: `write`: a run is one pass; `read`: some seconds after a first pass.
      unit: what is counted.
      table: the `benchmarks.tables.Table` of the data; '' for images.
      quick: whether it belongs to the quick run.
    """

    name: str
    title: str
    kind: Literal["write", "read"]
    unit: Literal["rows", "images"]
    entries: tuple[Entry, ...]
    table: str = ""
    batch_size: int = 512
    shuffle_buffer: int = 50_000
    quick: bool = False


def _csv(name: str, title: str, *, quick: bool = False, tfds: bool = True) -> Contest:
    rivals = {
        "tf.Transform, census example": "csv_tf_transform",
        "Python loop over tf.train.Example": "csv_python_loop",
        "pandas + TFRecordWriter": "csv_pandas",
        **({"TFDS CSV builder": "csv_tfds"} if tfds else {}),
    }
    return Contest(
        name=name,
        title=title,
        kind="write",
        unit="rows",
        table=name,
        quick=quick,
        entries=(
            Entry(name=OURS, does="benchmarks.ours_writing:write_csv", source=name),
            *(Entry(name=n, does=f"benchmarks.rivals.{m}:write", source=name) for n, m in rivals.items()),
            Entry(name=FLOOR, does="benchmarks.rivals.csv_floor:write", source=name, bound=True),
        ),
    )


def _photos(name: str, title: str, source: str, *, large: bool) -> Contest:
    """For large photos, also ways that decode at a scale; small photos are less than twice the stored size."""
    rivals = {
        "tf.data loop": "image_tf_data:write",
        **({"tf.data loop, decoding at a scale": "image_tf_data:write_scaled"} if large else {}),
        "TFDS ImageFolder, stored": "image_tfds:write",
        WEBDATASET: "image_webdataset:write",
    }
    bounds = {
        **({BARE_SCALED: "image_tf_data:write_nothing_scaled"} if large else {BARE: "image_tf_data:write_nothing"}),
        BARE_PILLOW: "image_pillow:write_nothing",
    }
    return Contest(
        name=name,
        title=title,
        kind="write",
        unit="images",
        quick=not large,
        entries=(
            Entry(name=OURS, does="benchmarks.ours_writing:write_images", source=source),
            *(Entry(name=n, does=f"benchmarks.rivals.{does}", source=source) for n, does in rivals.items()),
            *(Entry(name=n, does=f"benchmarks.rivals.{does}", source=source, bound=True) for n, does in bounds.items()),
        ),
    )


FLOOR = "the floor: pyarrow, C++ encoder and writer"
BARE = "bare decode, resize, encode"
BARE_SCALED = "bare decode at a scale, resize, encode"
BARE_PILLOW = "bare decode, resize, encode, Pillow"
WEBDATASET = "webdataset ShardWriter, Pillow"
ORIGINAL = "tf.data, original files"
ORIGINAL_PLAIN = "tf.data, original files, no antialias"
HELD = "Millrace, all in memory"
RAW = "raw records, shuffled, not parsed"
RAW_HELD = "raw records, all in memory"
RAW_BUFFER = "raw records, tf.data's shuffle buffer"
IMPORTS = "importing TensorFlow, Beam, tf.Transform"

CONTESTS = (
    _csv("covertype", "Covertype CSV to TFRecords", quick=True),
    _csv("census", "Census CSV to TFRecords, eight vocabularies", tfds=False),  # TFDS would double the time of a round
    _csv("mnist", "MNIST CSV (784 columns) to TFRecords"),
    Contest(
        name="covertype_6m",
        title="Covertype, 6,000,000 rows, to TFRecords",
        kind="write",
        unit="rows",
        table="covertype",
        entries=(
            Entry(name=OURS, does="benchmarks.ours_writing:write_csv", source="covertype_6m"),
            Entry(name=FLOOR, does="benchmarks.rivals.csv_floor:write", source="covertype_6m", bound=True),
        ),
    ),
    Contest(
        name="startup",
        title="Start-up: a job over a few rows beside the imports alone",
        kind="write",
        unit="rows",
        table="covertype",
        quick=True,
        entries=(
            Entry(name=OURS, does="benchmarks.ours_writing:write_csv", source="covertype_tiny"),
            Entry(name="Millrace, census", does="benchmarks.ours_writing:write_csv", source="census_tiny"),
            Entry(name=IMPORTS, does="benchmarks.imports:write", source="covertype_tiny", bound=True),
        ),
    ),
    _photos("images", "Photos of 500 pixels to TFRecords", "photos", large=False),
    _photos("images_2mp", "Photos of 2 megapixels to TFRecords", "photos_2mp", large=True),
    _photos("images_12mp", "Photos of 12 megapixels to TFRecords", "photos_12mp", large=True),
    Contest(
        name="read_rows",
        title="Reading rows for training (Covertype)",
        kind="read",
        unit="rows",
        table="covertype",
        quick=True,
        entries=(
            Entry(name=OURS, does="benchmarks.ours_reading:read", source="rows"),
            Entry(name=HELD, does="benchmarks.ours_reading:read_held", source="rows"),
            Entry(name="feed_dict, all in memory", does="benchmarks.rivals.rows_tf1:feed_dict", source="rows.csv"),
            Entry(name="queue runners, shuffle_batch", does="benchmarks.rivals.rows_tf1:queue_runner", source="rows"),
            Entry(
                name="queue runners, shuffle_batch_join", does="benchmarks.rivals.rows_tf1:queue_join", source="rows"
            ),
            Entry(
                name="custom runner, RandomShuffleQueue",
                does="benchmarks.rivals.rows_tf1:custom_runner",
                source="rows.csv",
            ),
            Entry(
                name="custom runner, all in memory",
                does="benchmarks.rivals.rows_tf1:custom_runner_held",
                source="rows.csv",
            ),
            Entry(name="from_generator", does="benchmarks.rivals.rows_tf_data:from_generator", source="rows.csv"),
            Entry(name="text lines, decode_csv", does="benchmarks.rivals.rows_tf_data:text_lines", source="rows.csv"),
            Entry(
                name="map(parse_single_example)", does="benchmarks.rivals.rows_tf_data:single_example", source="rows"
            ),
            Entry(name="TFDS", does="benchmarks.rivals.rows_tf_data:tfds", source="rows_tfds"),
            Entry(name="TFDS, all in memory", does="benchmarks.rivals.rows_tf_data:tfds_cached", source="rows_tfds"),
            Entry(name="webdataset", does="benchmarks.rivals.rows_webdataset:read", source="rows_webdataset"),
            Entry(name=RAW, does="benchmarks.ours_reading:read_raw", source="rows", bound=True),
            Entry(name=RAW_HELD, does="benchmarks.ours_reading:read_raw_held", source="rows", bound=True),
            Entry(name=RAW_BUFFER, does="benchmarks.rivals.rows_tf_data:raw_records", source="rows", bound=True),
        ),
    ),
    Contest(
        name="read_images",
        title="Reading images for training (224 x 224, cropped and mirrored)",
        kind="read",
        unit="images",
        batch_size=64,
        shuffle_buffer=1000,
        quick=True,
        entries=(
            Entry(name=OURS, does="benchmarks.ours_reading:read", source="images_jpeg"),
            Entry(name="Millrace, stored raw", does="benchmarks.ours_reading:read", source="images_raw"),
            Entry(name=ORIGINAL, does="benchmarks.rivals.image_original:read", source="photos_once"),
            Entry(name=ORIGINAL_PLAIN, does="benchmarks.rivals.image_original:read_plain", source="photos_once"),
            Entry(name="feed_dict", does="benchmarks.rivals.image_tf1:feed_dict", source="photos_once"),
            Entry(
                name="queue runners, shuffle_batch",
                does="benchmarks.rivals.image_tf1:queue_runner",
                source="photos_once",
            ),
            Entry(
                name="queue runners, shuffle_batch_join",
                does="benchmarks.rivals.image_tf1:queue_join",
                source="photos_once",
            ),
            Entry(
                name="custom runner, RandomShuffleQueue",
                does="benchmarks.rivals.image_tf1:custom_runner",
                source="photos_once",
            ),
            Entry(name="from_generator", does="benchmarks.rivals.image_tf1:from_generator", source="photos_once"),
            Entry(
                name="from_generator, of paths",
                does="benchmarks.rivals.image_tf1:from_generator_of_paths",
                source="photos_once",
            ),
            Entry(name="TFDS ImageFolder", does="benchmarks.rivals.image_tfds:read_folder", source="photos_once"),
            Entry(name="TFDS, stored resized", does="benchmarks.rivals.image_tfds:read", source="images_tfds"),
            Entry(
                name="TFDS, stored resized, all in memory",
                does="benchmarks.rivals.image_tfds:read_cached",
                source="images_tfds",
            ),
            Entry(
                name="webdataset, stored resized",
                does="benchmarks.rivals.image_webdataset:read",
                source="images_webdataset",
            ),
            Entry(name=RAW, does="benchmarks.ours_reading:read_raw", source="images_jpeg", bound=True),
        ),
    ),
)
