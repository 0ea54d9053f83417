"""Writes the report of a run, `report.html`, and collects the images, rows and records that the report shows."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_jobs.core.inputs import StagedInputs
from beam_jobs.records.result import Result
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.dataset.records import stored_records
from schemas.errors import MillraceError
from schemas.libraries import tensorflow
from schemas.profile.leakage_findings import with_paths
from schemas.profile.relations import named
from schemas.rejects import Reject, read_rejects
from schemas.report import data_report
from schemas.report.leakage import files_of, places_of
from schemas.report.thumbnails import opened, thumbnail, thumbnails
from schemas.spec import images as keys
from schemas.storage import folders
from schemas.storage.json_files import read_if_there

PICTURES = 80  # the most image files that a report shows
PIXELS = 1 << 26  # the most pixels that are decoded for all pictures together; this takes about a second
_READ = 1 << 25  # the largest image file that is shown, in bytes


def shown_files(paths: Iterable[str]) -> Mapping[str, str]:
    """Returns thumbnails of image files as `data:` URLs, by path.

    Stops after PICTURES files, and skips files that exceed the limits of this module. A file that does not exist any
    more, or that Pillow cannot read, is left out.
    """
    import PIL.Image

    urls: dict[str, str] = {}
    left = PIXELS
    for path in paths:
        if len(urls) == PICTURES:
            break
        try:
            with storage.open_read(path) as file:
                data = file.read(_READ + 1)
            with opened(data if len(data) <= _READ else b"") as image:
                if image.width * image.height > left:
                    continue
                left -= image.width * image.height
                urls[path] = thumbnail(image)
        except (OSError, ValueError, SyntaxError, MillraceError, PIL.Image.DecompressionBombError):
            continue
    return urls


EACH = 10  # the most images that are shown of a class
CLASSES = 20  # the most classes of which images are shown
LOOKED_AT = 2_000  # the records at the start of the train split that are searched; the records are in random order


def _values(record: bytes) -> dict[str, Sequence[Any]]:
    """The values of a stored tf.Example, by feature."""
    features = tensorflow().train.Example.FromString(record).features.feature
    return {name: getattr(x, x.WhichOneof("kind") or "bytes_list").value for name, x in sorted(features.items())}


def shown_images(output: str, manifest: Manifest) -> Mapping[str, list[str]]:
    """Returns thumbnails of stored images as `data:` URLs, by class. Empty for datasets of rows or of image pairs."""
    by_class: dict[str, list[str]] = collections.defaultdict(list)
    paths = [layout.join(output, shard.path) for shard in manifest.splits["train"].shards]
    records = (stored_records(path, compressed=manifest.compression == "gzip") for path in paths)
    for record in itertools.islice(itertools.chain.from_iterable(records), LOOKED_AT):
        values = _values(record)
        if keys.ENCODED not in values:
            break
        name = values[keys.TEXT][0].decode()
        if len(by_class[name]) < EACH and (by_class[name] or len(by_class) <= CLASSES):
            by_class[name] += thumbnails(values)
    return {name: urls for name, urls in sorted(by_class.items()) if urls}


def place_leakage(
    run_dir: str, result: Result, inputs: StagedInputs, statistics: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Writes the findings of leakage to the run's `leakage.json`.

    The pipeline knows files by keys and strings by hashes. The keys are replaced by paths here, and the hashes of
    frequent values by the values themselves.

    Args:
      run_dir: the folder of the run.
      result: the result of the pipeline.
      inputs: the inputs, with the path of each key.
      statistics: the statistics as JSON values, which have the frequent values; None: there are none.

    Returns:
      The findings as JSON values; None if the job did not search for leakage.
    """
    if not result.leakage:
        return None
    findings = with_paths(result.leakage, inputs.path_of)
    if "relations" in findings:
        tops = {
            item["name"]: [top["value"] for split in item["splits"].values() for top in split.get("top_values", ())]
            for item in (statistics or {"features": ()})["features"]
            if item["type"] == "string"
        }
        findings["relations"] = named(findings["relations"], tops)
    folders.create(layout.join(run_dir, layout.LEAKAGE), json.dumps(findings, allow_nan=False).encode() + b"\n")
    return findings


ROWS, CELL = 10, 40  # the rows that are shown, and the most characters of a cell
RECORDS = 60  # leakage findings name records; the report shows the beginnings of at most this many


def shown_rows(run_dir: str) -> list[dict[str, str]]:
    """Returns some raw rows as text by column, from the run's parity records; [] if the run has no parity records."""
    path = layout.join(run_dir, layout.PARITY_RAW)
    if not storage.exists(path):
        return []
    records = itertools.islice(stored_records(path, compressed=False), ROWS)
    rows = [{name: _cell(cells) for name, cells in _values(record).items()} for record in records]
    names = sorted({name for row in rows for name in row})
    return [{name: row.get(name, "") for name in names} for row in rows]


def _cell(values: Sequence[Any]) -> str:
    """The first 8 values of a feature as text, cut to CELL characters."""
    texts = [data_report.shown(v).strip() if isinstance(v, bytes) else _number(v) for v in values[:8]]
    text = ", ".join(texts) + (f", ... ({len(values):,})" if len(values) > 8 else "")
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _number(value: float) -> str:
    """The shortest text for a float32; '' for NaN, which stands for an empty cell."""
    return "" if math.isnan(value) else np.format_float_positional(np.float32(value), trim="-")


def shown_records(places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], bytes]:
    """Returns the beginnings of raw records, by path and offset.

    Files that do not exist any more or were changed are left out. Compressed and UTF-16 files are left out, too,
    because offsets count decoded bytes there.
    """
    records = {}
    for path, offset in places[:RECORDS]:
        with contextlib.suppress(OSError, MillraceError), storage.open_read(path) as file:
            if file.read(2) not in _ENCODED:
                file.seek(offset)
                records[path, offset] = file.read(data_report.SHOWN_BYTES).split(b"\n")[0].rstrip(b"\r")
    return records


_ENCODED = {b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff"}  # the first bytes of files in gzip and in UTF-16


def place_report(
    output: str,
    manifest: Manifest,
    *,
    statistics: Mapping[str, Any] | None,
    comparisons: Sequence[Mapping[str, Any]],
    phases: Sequence[tuple[str, float]],
) -> None:
    """Writes `report.html` to the run's folder, unless another attempt at this commit has written it.

    The run's shards, `leakage.json` and rejects must be in the run's folder already.

    Args:
      output: the dataset's folder.
      manifest: the manifest, complete but for the list of the run's files.
      statistics: the statistics as JSON values; None: the job did not collect statistics.
      comparisons: the comparisons of splits and datasets, as JSON values.
      phases: the name and the seconds of each phase of the job; empty: they are not known.
    """
    run_dir = layout.join(output, manifest.run)
    names = set(storage.listdir(run_dir))
    leakage = read_if_there(layout.join(run_dir, layout.LEAKAGE), "what the job found")
    page = data_report.render(
        manifest,
        statistics=statistics,
        rejects=_rejects(run_dir, names),
        phases=phases,
        images=shown_images(output, manifest) if manifest.classes else {},
        leakage=leakage,
        pictures=shown_files(files_of(leakage)) if leakage else {},
        rows=[] if manifest.classes else shown_rows(run_dir),
        texts=shown_records(places_of(leakage)) if leakage else {},
        comparisons=comparisons,
    )
    folders.create(layout.join(run_dir, layout.REPORT), page.encode())


def _rejects(run_dir: str, names: set[str]) -> Iterator[Reject]:
    """Yields all rejects of a run. `names`: the names of the files in its folder."""
    for name in sorted(name for name in names if layout.REJECTS.fullmatch(name)):
        yield from read_rejects(storage.read_bytes(layout.join(run_dir, name)))
