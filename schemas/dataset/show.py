"""Shows a dataset: its manifest and schema as text or JSON, and the first records of a split.

Records are shown as a table with a line for each feature. Images are shown as a contact sheet: one PNG of all images,
drawn by Pillow, with the class below each image.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas import command, storage
from schemas.dataset import layout
from schemas.dataset.leakage import lines, read_leakage
from schemas.dataset.opening import open_dataset, read_checked
from schemas.dataset.prune import foreign, leftovers
from schemas.dataset.records import Image, RecordTable, classes_of, meanings, read_records, stored_features, words_of
from schemas.display import table
from schemas.errors import UsageError, counted, few
from schemas.spec import images as keys
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema

if TYPE_CHECKING:
    import PIL.Image


_CLASSES = 20  # the most classes that the text names


def describe(data_dir: str) -> dict[str, Any]:
    """Returns a description of a dataset as JSON values, as `--json` prints it.

    Raises:
      UsageError: there is no dataset.
      MillraceError: the manifest, the schema or the description of the features cannot be read.
    """
    manifest = read_checked(data_dir)
    schema = load_schema(layout.join(data_dir, manifest.run, layout.SCHEMA_YAML))
    label = schema.label.name if isinstance(schema, Schema) else keys.CLASS
    classes = list(manifest.classes) or classes_of(data_dir, manifest, schema)
    return {
        "path": data_dir,
        "name": manifest.name,
        "format": manifest.format,
        "run": manifest.run,
        "created": manifest.created,
        "compression": manifest.compression,
        "schema_fingerprint": manifest.schema_fingerprint,
        "transform_from": manifest.transform_from,
        "preprocessing_fn": manifest.preprocessing_fn,
        "appended": list(manifest.appended),
        "replayed": manifest.replayed,
        "splits": {
            name: {"rows": split.rows, "shards": len(split.shards), "bytes": sum(s.bytes for s in split.shards)}
            for name, split in manifest.splits.items()
        },
        "features": [
            {"name": f.name, "dtype": f.dtype, "shape": None if f.shape is None else list(f.shape)}
            for f in stored_features(data_dir, manifest, schema)
        ],
        "places": any(shard.places is not None for shard in manifest.shards),
        "label": label,
        "classes": classes,
        "read": manifest.read,
        "written": manifest.written,
        "rejected": manifest.rejected,
        "rejects": [{"stage": s, "reason": r, "rows": rows} for (s, r), rows in manifest.rejects.most_common()],
        "warnings": [warning.model_dump() for warning in manifest.warnings],
        "leakage": read_leakage(data_dir, manifest),
        "inputs": [
            file.model_dump(include={"path", "bytes", "read", "written", "rejected"}) for file in manifest.inputs
        ],
        "input_count": manifest.number_of_inputs,
        "input_files": list(manifest.input_files),  # these list the inputs if there are many
        "versions": manifest.versions,
        "seconds": manifest.seconds,
        "runs": {
            "in_use": sorted(manifest.runs),
            "previous": sorted(set(manifest.previous) - manifest.runs),
            "unnamed": leftovers(data_dir),  # including those of a running job
            "foreign": foreign(data_dir),
        },
    }


def render(described: dict[str, Any]) -> str:
    """Returns the result of `describe` as text."""
    return "\n".join(_lines(described))


def _lines(d: dict[str, Any]) -> Iterator[str]:
    yield f"{d['name']} ({d['format']}), run {d['run']} of {d['created']}, {d['seconds']:,.1f} s"
    if d["transform_from"]:
        yield f"transform of run {d['transform_from']}"
    if d["preprocessing_fn"]:
        yield f"preprocessing_fn {d['preprocessing_fn']}"
    if d["appended"]:
        yield f"grown by {counted(len(d['appended']), 'appends')}, the last one in run {d['appended'][-1]}"
    if d["replayed"]:
        yield f"with {counted(d['replayed'], 'corrected records')}, added by --replay, in no input file"
    yield ""
    splits = [(name, f"{s['rows']:,}", f"{s['shards']:,}", f"{s['bytes']:,}") for name, s in d["splits"].items()]
    packed = "gzip'd bytes" if d["compression"] == "gzip" else "bytes"
    yield from table(("split", "rows", "shards", packed), splits)
    yield ""
    features = [(f["name"], f["dtype"], _shape(f["shape"]), _role(f, d)) for f in d["features"]]
    yield from table(("feature", "dtype", "shape", ""), features, left=4)
    yield ""
    if d["places"]:
        yield "places-*.arrow beside the shards: the file and the offset of each record's row"
        yield ""
    inputs = [(f["path"], *(f"{f[name]:,}" for name in ("bytes", "read", "written", "rejected"))) for f in d["inputs"]]
    if d["input_files"]:
        yield f"{counted(d['input_count'], 'inputs')}, listed in {d['input_files'][0]} to {d['input_files'][-1]}"
    else:
        yield from table(("input", "bytes", "read", "written", "rejected"), inputs)
    if d["rejects"]:
        yield ""
        rejects = [(r["reason"], r["stage"], f"{r['rows']:,}") for r in d["rejects"]]
        yield from table(("rejected for", "at", "rows"), rejects, left=2)
    if d["warnings"]:
        yield ""
        yield from (f"warning: {warning['message']}" for warning in d["warnings"])
    if d["leakage"]:
        yield ""
        yield from lines(d["leakage"])
    yield ""
    yield "versions   " + ", ".join(f"{name} {version}" for name, version in d["versions"].items())
    for name, names in d["runs"].items():
        if names:
            yield f"{name.replace('_', ' '):<10} {', '.join(names)}"


def _shape(shape: list[int] | None) -> str:
    return "any number" if shape is None else f"[{', '.join(map(str, shape))}]"


def _role(feature: dict[str, Any], described: dict[str, Any]) -> str:
    """Returns `the label` with its classes for the label, and '' for other features."""
    if feature["name"] != described["label"]:
        return ""
    classes = described["classes"]
    if classes is None:
        return "the label"
    return f"the label: {few(classes, _CLASSES)}"


SIDE = 160  # the longest side of an image on the contact sheet, in pixels
_GAP, _LINE = 8, 18  # the space around an image and the height of a line of text, in pixels
_ACROSS = 8  # the most images side by side


def contact_sheet(records: RecordTable) -> bytes:
    """Draws the images of some records, at least one, on a contact sheet, and returns it as a PNG.

    There are up to eight images side by side. Images larger than 160 pixels are scaled down.
    """
    import PIL.Image
    from PIL import ImageDraw, ImageFont

    pictures = [_decoded(record["image"]) for record in records]
    captions = [str(record.get(keys.TEXT, "")) for record in records]
    width = max(picture.width for picture in pictures)
    height = max(picture.height for picture in pictures)
    font = ImageFont.load_default(12)
    # About twice as many images across as rows of images.
    across = min(len(pictures), _ACROSS, math.ceil(math.sqrt(2 * len(pictures))))
    cell = (max(width, 72) + _GAP, height + _LINE + _GAP)
    sheet = PIL.Image.new("RGB", (across * cell[0] + _GAP, math.ceil(len(pictures) / across) * cell[1] + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left, top = _GAP + i % across * cell[0], _GAP + i // across * cell[1]
        sheet.paste(picture, (left, top + height - picture.height))
        # The longest beginning of the caption that is as wide as the image's cell.
        fits = next(
            (n for n in range(len(caption), 0, -1) if draw.textlength(caption[:n], font=font) <= cell[0] - 2), 0
        )
        draw.text((left, top + height + 2), caption[:fits], fill="black", font=font)
    data = io.BytesIO()
    sheet.save(data, "PNG")
    return data.getvalue()


def _decoded(image: Image) -> PIL.Image.Image:
    import PIL.Image

    if image.format == "RAW":
        picture = PIL.Image.frombytes("RGB", (image.width, image.height), image.data)
    else:
        picture = PIL.Image.open(io.BytesIO(image.data)).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    return picture


ROWS, IMAGES = 5, 24  # the number of records that are shown by default
_MOST = 10_000


def head_of(data_dir: str, split: str, count: int | None, *, sheet: str | None, overwrite: bool) -> command.Report:
    """Returns the report of `head`: the first records of a split.

    Args:
      data_dir: the dataset directory.
      split: train, eval or test.
      count: the number of records; None: 5 rows or 24 images.
      sheet: the file for the contact sheet of images; None: a new file in the current folder.
      overwrite: whether `sheet` may replace an existing file.

    Raises:
      UsageError: there is no such dataset or split, `count` is out of range, or `sheet` cannot be written.
      MillraceError: a record is damaged.
    """
    if count is not None and not 1 <= count <= _MOST:
        raise UsageError(f"-n {count}: must be from 1 to {_MOST:,}")
    dataset = open_dataset(data_dir, trust=True)  # safe, because this command loads no graph
    if split not in dataset.manifest.splits:
        split_names = ", ".join(dataset.manifest.splits)
        raise UsageError(f"--split {split}: {data_dir} has no such split; it has {split_names}")
    images = dataset.image_schema is not None
    if sheet is not None:
        if not images:
            raise UsageError(f"--output {sheet}: is for the contact sheet of images; {data_dir} holds rows")
        storage.check_scheme(sheet)
        storage.check_output(sheet, overwrite=overwrite)
    records = read_records(dataset, split, count or (IMAGES if images else ROWS))
    words = meanings(dataset)
    total = dataset.manifest.splits[split].rows
    lines = [f"{split}: the first {len(records):,} of {counted(total, 'records')} of {dataset.manifest.name}"]
    lines += records.lines(words)
    path = None
    if images and records:
        path = sheet or _new_name(f"{re.sub(r'[^A-Za-z0-9_.-]', '_', dataset.manifest.name)}-{split}")
        storage.write_bytes(path, contact_sheet(records))
        lines.append(f"contact sheet: {path}")
    data = {
        "path": data_dir,
        "split": split,
        "rows": total,
        "records": [_as_json(record, words) for record in records],
        "contact_sheet": path,
    }
    return command.Report("\n".join(lines), data, only_printed=True)


def _new_name(stem: str) -> str:
    """Returns the name of a PNG in the current folder that does not exist yet."""
    name, number = f"{stem}.png", 2
    while storage.exists(name):
        name, number = f"{stem}-{number}.png", number + 1
    return name


def _as_json(record: Mapping[str, Any], words: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Returns the values of a record for JSON. An id has its word beside it, and an image is its size and format."""
    values: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Image):
            values[name] = {
                "format": value.format,
                "height": value.height,
                "width": value.width,
                "bytes": len(value.data),
            }
        else:
            values[name] = _text(value)
            if name in words:
                values[f"{name} means"] = words_of(value, words[name])
    return values


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(item) for item in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
