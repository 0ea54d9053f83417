"""Describes a dataset from its manifest and schema: as text, or as JSON for programs."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

from schemas.dataset import layout
from schemas.dataset.leakage import lines, read_leakage
from schemas.dataset.manifest import Manifest
from schemas.dataset.opening import read_checked
from schemas.dataset.prune import foreign, leftovers
from schemas.dataset.records import read_vocabulary, stored_features
from schemas.display import table
from schemas.spec.features import CategoryLabel
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import Schema

_CLASSES = 20  # shown in the text


def describe(data_dir: str) -> dict[str, Any]:
    """Describes a dataset as JSON values: what `--json` prints.

    Raises:
      MillraceError: there is no dataset, or its schema or feature description cannot be read.
    """
    manifest = read_checked(data_dir)
    schema = load_schema(layout.join(data_dir, manifest.run, layout.SCHEMA_YAML))
    label, classes = _label(data_dir, manifest, schema)
    rejects: collections.Counter[tuple[str, str]] = collections.Counter()
    for count in manifest.outcomes:
        if count.outcome == "rejected":
            rejects[count.stage or "", count.reason or ""] += count.rows
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
        "analyzed": manifest.analyzed,
        "splits": {
            name: {"rows": split.rows, "shards": len(split.shards), "bytes": sum(s.bytes for s in split.shards)}
            for name, split in manifest.splits.items()
        },
        "features": [
            {"name": f.name, "dtype": f.dtype, "shape": None if f.shape is None else list(f.shape)}
            for f in stored_features(data_dir, manifest, schema)
        ],
        "label": label,
        "classes": classes,
        "read": manifest.read,
        "written": manifest.written,
        "rejected": manifest.rejected,
        "rejects": [{"stage": s, "reason": r, "rows": rows} for (s, r), rows in rejects.most_common()],
        "warnings": [warning.model_dump() for warning in manifest.warnings],
        "leakage": read_leakage(data_dir, manifest),
        "inputs": [
            file.model_dump(include={"path", "bytes", "read", "written", "rejected"}) for file in manifest.inputs
        ],
        "input_count": manifest.number_of_inputs,
        "input_files": list(manifest.input_files),  # of a dataset of many inputs, which are listed there
        "versions": manifest.versions,
        "seconds": manifest.seconds,
        "runs": {
            "in_use": sorted(manifest.runs),
            "previous": sorted(set(manifest.previous) - manifest.runs),
            "unnamed": leftovers(data_dir),  # including those of a running job
            "foreign": foreign(data_dir),
        },
    }


def _label(data_dir: str, manifest: Manifest, schema: AnySchema) -> tuple[str, list[str] | None]:
    """The label's feature, and the classes by id; None for a number."""
    if not isinstance(schema, Schema):
        return schema.label_key, list(manifest.classes)
    label = schema.label
    if not isinstance(label, CategoryLabel):
        return label.name, None
    if label.values is not None:
        return label.name, list(label.values)
    return label.name, read_vocabulary(data_dir, manifest, label.name)


def render(described: dict[str, Any]) -> str:
    """The description as text."""
    return "\n".join(_lines(described))


def _lines(d: dict[str, Any]) -> Iterator[str]:
    yield f"{d['name']} ({d['format']}), run {d['run']} of {d['created']}, {d['seconds']:,.1f} s"
    if d["transform_from"]:
        yield f"transform of run {d['transform_from']}"
    if d["preprocessing_fn"]:
        yield f"preprocessing_fn {d['preprocessing_fn']}"
    if d["appended"]:
        yield f"grown by {len(d['appended']):,} append(s), the last one in run {d['appended'][-1]}"
    if d["analyzed"]:
        yield f"has kept the analysis of {sum(d['analyzed'].values()):,} records"
    yield ""
    splits = [(name, f"{s['rows']:,}", f"{s['shards']:,}", f"{s['bytes']:,}") for name, s in d["splits"].items()]
    packed = "gzip'd bytes" if d["compression"] == "gzip" else "bytes"
    yield from table(("split", "rows", "shards", packed), splits)
    yield ""
    features = [(f["name"], f["dtype"], _shape(f["shape"]), _role(f, d)) for f in d["features"]]
    yield from table(("feature", "dtype", "shape", ""), features, left=4)
    yield ""
    inputs = [(f["path"], *(f"{f[name]:,}" for name in ("bytes", "read", "written", "rejected"))) for f in d["inputs"]]
    if d["input_files"]:
        yield f"{d['input_count']:,} inputs, listed in {d['input_files'][0]} to {d['input_files'][-1]}"
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
    if feature["name"] != described["label"]:
        return ""
    classes = described["classes"]
    if classes is None:
        return "the label"
    more = f" and {len(classes) - _CLASSES:,} more" if len(classes) > _CLASSES else ""
    return f"the label: {', '.join(classes[:_CLASSES])}{more}"
