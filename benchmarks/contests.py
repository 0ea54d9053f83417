"""The contests: ways to do the same work on the same input, which are measured in turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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


FLOOR = "the floor: pyarrow, C++ encoder and writer"
BARE = "bare decode, resize, encode"
BARE_SCALED = "bare decode at a scale, resize, encode"
BARE_PILLOW = "bare decode, resize, encode, Pillow"
WEBDATASET = "webdataset ShardWriter, Pillow"
OURS_LEAST = "Millrace, downscale: 1"
WEBDATASET_TWICE = "webdataset ShardWriter, Pillow, at twice the size"
ORIGINAL = "tf.data, original files"
ORIGINAL_PLAIN = "tf.data, original files, no antialias"
HELD = "Millrace, all in memory"
TFDS_HELD = "TFDS, stored resized, all in memory"
RAW = "raw records, shuffled, not parsed"
RAW_HELD = "raw records, all in memory"
RAW_BUFFER = "raw records, tf.data's shuffle buffer"
ALONE = "Millrace, --workers 1"
IMPORTS = "importing TensorFlow, Beam, tf.Transform"


Way = tuple[str, str, str]  # its name, what it does in this package, and the name of what it reads


def _ways(*ways: Way, bounds: Sequence[Way] = ()) -> tuple[Entry, ...]:
    return tuple(
        Entry(name=name, does=f"benchmarks.{does}", source=source, bound=bound)
        for some, bound in ((ways, False), (bounds, True))
        for name, does, source in some
    )


def _csv(name: str, title: str, *, quick: bool = False, tfds: bool = True, alone: bool = False) -> Contest:
    entries = _ways(
        (OURS, "ours_writing:write_csv", name),
        *([(ALONE, "ours_writing:write_alone", name)] if alone else []),
        ("tf.Transform, census example", "rivals.csv_tf_transform:write", name),
        ("Python loop over tf.train.Example", "rivals.csv_python_loop:write", name),
        ("pandas + TFRecordWriter", "rivals.csv_pandas:write", name),
        *([("TFDS CSV builder", "rivals.csv_tfds:write", name)] if tfds else []),
        bounds=[(FLOOR, "rivals.csv_floor:write", name)],
    )
    return Contest(name=name, title=title, kind="write", unit="rows", table=name, quick=quick, entries=entries)


def _photos(name: str, title: str, source: str, *, large: bool) -> Contest:
    """For large photos, also ways that decode at a scale; small photos are less than twice the stored size."""
    scaled = ("tf.data loop, decoding at a scale", "rivals.image_tf_data:write_scaled", source)
    bare = (BARE_SCALED, "write_nothing_scaled") if large else (BARE, "write_nothing")
    entries = _ways(
        (OURS, "ours_writing:write_images", source),
        *([(OURS_LEAST, "ours_writing:write_images_least", source)] if large else []),
        ("tf.data loop", "rivals.image_tf_data:write", source),
        *([scaled] if large else []),
        ("TFDS ImageFolder, stored", "rivals.image_tfds:write", source),
        (WEBDATASET, "rivals.image_webdataset:write", source),
        *([(WEBDATASET_TWICE, "rivals.image_webdataset:write_twice", source)] if large else []),
        bounds=[
            (bare[0], f"rivals.image_tf_data:{bare[1]}", source),
            (BARE_PILLOW, "rivals.image_pillow:write_nothing", source),
        ],
    )
    return Contest(name=name, title=title, kind="write", unit="images", quick=not large, entries=entries)


CONTESTS = (
    _csv("covertype", "Covertype CSV to TFRecords", quick=True, alone=True),  # a little above 64 MB
    _csv("census", "Census CSV to TFRecords, eight vocabularies", tfds=False),  # TFDS would double the time of a round
    _csv("mnist", "MNIST CSV (784 columns) to TFRecords"),
    Contest(
        name="covertype_6m",
        title="Covertype, 6,000,000 rows, to TFRecords",
        kind="write",
        unit="rows",
        table="covertype",
        entries=_ways(
            (OURS, "ours_writing:write_csv", "covertype_6m"),
            (ALONE, "ours_writing:write_alone", "covertype_6m"),
            bounds=[
                (FLOOR, "rivals.csv_floor:write", "covertype_6m"),
            ],
        ),
    ),
    Contest(
        name="startup",
        title="Start-up: a job over a few rows beside the imports alone",
        kind="write",
        unit="rows",
        table="covertype",
        quick=True,
        entries=_ways(
            (OURS, "ours_writing:write_csv", "covertype_tiny"),
            ("Millrace, census", "ours_writing:write_csv", "census_tiny"),
            bounds=[(IMPORTS, "imports:write", "covertype_tiny")],
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
        entries=_ways(
            (OURS, "ours_reading:read", "rows"),
            (HELD, "ours_reading:read_held", "rows"),
            ("feed_dict, all in memory", "rivals.rows_tf1:feed_dict", "rows.csv"),
            ("queue runners, shuffle_batch", "rivals.rows_tf1:queue_runner", "rows"),
            ("queue runners, shuffle_batch_join", "rivals.rows_tf1:queue_join", "rows"),
            ("custom runner, RandomShuffleQueue", "rivals.rows_tf1:custom_runner", "rows.csv"),
            ("custom runner, all in memory", "rivals.rows_tf1:custom_runner_held", "rows.csv"),
            ("from_generator", "rivals.rows_tf_data:from_generator", "rows.csv"),
            ("text lines, decode_csv", "rivals.rows_tf_data:text_lines", "rows.csv"),
            ("map(parse_single_example)", "rivals.rows_tf_data:single_example", "rows"),
            ("TFDS", "rivals.rows_tf_data:tfds", "rows_tfds"),
            ("TFDS, all in memory", "rivals.rows_tf_data:tfds_cached", "rows_tfds"),
            ("webdataset", "rivals.rows_webdataset:read", "rows_webdataset"),
            bounds=[
                (RAW, "ours_reading:read_raw", "rows"),
                (RAW_HELD, "ours_reading:read_raw_held", "rows"),
                (RAW_BUFFER, "rivals.rows_tf_data:raw_records", "rows"),
            ],
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
        entries=_ways(
            (OURS, "ours_reading:read", "images_jpeg"),
            (HELD, "ours_reading:read_held", "images_jpeg"),
            ("Millrace, stored raw", "ours_reading:read", "images_raw"),
            (ORIGINAL, "rivals.image_tf_data:read", "photos_once"),
            (ORIGINAL_PLAIN, "rivals.image_tf_data:read_plain", "photos_once"),
            ("feed_dict", "rivals.image_tf1:feed_dict", "photos_once"),
            ("queue runners, shuffle_batch", "rivals.image_tf1:queue_runner", "photos_once"),
            ("queue runners, shuffle_batch_join", "rivals.image_tf1:queue_join", "photos_once"),
            ("custom runner, RandomShuffleQueue", "rivals.image_tf1:custom_runner", "photos_once"),
            ("from_generator", "rivals.image_tf1:from_generator", "photos_once"),
            ("from_generator, of paths", "rivals.image_tf1:from_generator_of_paths", "photos_once"),
            ("TFDS ImageFolder", "rivals.image_tfds:read_folder", "photos_once"),
            ("TFDS, stored resized", "rivals.image_tfds:read", "images_tfds"),
            (TFDS_HELD, "rivals.image_tfds:read_cached", "images_tfds"),
            ("webdataset, stored resized", "rivals.image_webdataset:read", "images_webdataset"),
            bounds=[(RAW, "ours_reading:read_raw", "images_jpeg")],
        ),
    ),
)
