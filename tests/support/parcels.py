"""A folder as a user has it after a job and a training: parcels, and whether they were late."""

from __future__ import annotations

from pathlib import Path

from tests.support.datasets import Folder, written
from trainer import task

SCHEMA = """\
name: parcels
format: csv
csv: {header: present, missing: [""]}
features:
  - {name: parcel, kind: key}
  - {name: depot, kind: category}
  - {name: weight_kg, kind: numeric, transform: log}
  - {name: distance_km, kind: numeric, transform: z_score, missing: median, indicator: true}
  - {name: fragile, kind: bool}
  - {name: remark, kind: text, length: 3}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: [parcel], train: 0.8, eval: 0.1, test: 0.1}
"""
HEADER = "parcel,depot,weight_kg,distance_km,fragile,remark,late"
REMARKS = ("", "left at door", "by hand")
REJECTED = ("P300,Cork,heavy,100,yes,,no", "P301,Cork,1.5,100,perhaps,,no")


def row(i: int) -> str:
    distance = "" if i % 9 == 0 else str(i * 37 % 900)
    late = "yes" if i * 37 % 900 > 450 else "no"
    return f"P{i:03},{('Basel', 'Cork', 'Zürich')[i % 3]},{1 + i % 7 / 4},{distance},yes,{REMARKS[i % 4 % 3]},{late}"


def write_parcels(folder: Path) -> None:
    """Writes `raw.csv`, of 300 rows and two that are rejected, `schema.yaml`, the dataset `data`, and `model`."""
    raw = Folder(folder).write("raw.csv", [HEADER, *map(row, range(300)), *REJECTED])
    written(folder, SCHEMA, raw, output=str(folder / "data"), max_rejects=2)
    argv = ["--data_dir", str(folder / "data"), "--model_dir", str(folder / "model"), "--model", "softmax"]
    if task.main([*argv, "--max_steps", "20", "--save_checkpoints_steps", "20", "--no_report", "--quiet"]):
        raise RuntimeError(f"{folder}: the training failed")
