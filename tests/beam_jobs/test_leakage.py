"""Jobs say what leakage they found: in the summary, in the run, in `show` and in the report."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
from sklearn.metrics import roc_auc_score

from beam_jobs.preprocess import main as preprocess
from beam_jobs.preprocess import summarize
from schemas.dataset import OpenDataset, layout
from schemas.dataset.command import main as dataset_command
from schemas.dataset.leakage import read_leakage
from schemas.errors import MillraceError
from tests.support.datasets import Folder
from tests.support.written_records import examples

SCHEMA = """\
name: parcels
format: csv
csv: {header: present, missing: [""]}
features:
  - {name: parcel, kind: key}
  - {name: depot, kind: category, values: [Aarhus, Basel]}
  - {name: weight, kind: numeric, transform: none}
  - {name: refund, kind: category, values: ["1"], missing: unknown}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: file, train: train.csv, eval: eval.csv, test: test.csv}
"""


def parcels(folder: Path) -> dict[str, pd.DataFrame]:
    """Files of which eval has 40 rows of train, test three keys of eval; `refund` is known for what was late."""
    drawn = np.random.default_rng(0)
    files = {}
    for number, (name, rows) in enumerate({"train": 1500, "eval": 300, "test": 200}.items()):
        late = drawn.random(rows) < 0.2
        files[name] = pd.DataFrame(
            {
                "parcel": [f"{number}-{i}" for i in range(rows)],
                "depot": drawn.choice(["Aarhus", "Basel"], rows),
                "weight": drawn.exponential(5, rows).round(6),
                "refund": np.where(late, "1", ""),
                "late": np.where(late, "yes", "no"),
            }
        )
    files["eval"].iloc[:40, 1:] = files["train"].iloc[100:140, 1:].to_numpy()
    files["test"].loc[:2, "parcel"] = files["eval"].loc[:2, "parcel"]
    folder.mkdir()
    for name, frame in files.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    (folder / "schema.yaml").write_text(SCHEMA)
    return files


def run(folder: Path, pattern: str, output: Path, **changes: Any) -> OpenDataset:
    return Folder(folder).run(input=(str(folder / pattern),), output=str(output), **changes)


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenDataset, dict[str, pd.DataFrame]]:
    """A dataset with leaks, and the files that it was made of."""
    folder = tmp_path_factory.mktemp("leaking")
    files = parcels(folder / "raw")
    return run(folder / "raw", "*.csv", folder / "out", range_mb=0.02), files


def test_a_job_says_what_it_found_and_where(leaking: tuple[OpenDataset, dict[str, pd.DataFrame]], capsys) -> None:
    dataset, files = leaking
    manifest = dataset.manifest
    leakage = read_leakage(dataset.path, manifest)
    assert leakage is not None
    features = ["depot", "weight", "refund", "late"]
    expected = files["eval"].merge(files["train"][features].drop_duplicates(), on=features)
    (equal,) = leakage["rows"]["equal"]
    assert (equal["records"], equal["of"]) == (len(expected), 300) == (40, 300)
    for pair in equal["examples"]:
        rows = [record_at(place).split(",")[1:] for place in pair]
        assert rows[0] == rows[1]
    (shared,) = leakage["keys"]["in_two_splits"]
    assert (shared["splits"], shared["records"]) == (["eval", "test"], 3)
    assert {record_at(place).split(",")[0] for pair in shared["examples"] for place in pair} == {"1-0", "1-1", "1-2"}
    codes = [(warning.feature, warning.code) for warning in manifest.warnings]
    assert codes[:3] == [("", "equal_rows"), ("", "key_in_two_splits"), ("refund", "tells_label")]
    summary = summarize(dataset.path, manifest)
    assert (
        "warning    leakage: 40 of 300 rows of eval (13.3 %) have the features and the label of a row of train"
        in summary
    )
    assert "warning    refund: alone it predicts late with an AUC of 1.0000 in the train split" in summary
    assert dataset_command(["show", dataset.path]) == 0
    shown = capsys.readouterr().out
    assert "equal rows in two splits: 40 of eval in train (all 2,000 rows)" in shown
    assert dataset_command(["show", dataset.path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leakage"] == leakage
    assert dataset_command(["verify", dataset.path]) == 0
    page = Path(dataset.run_dir, layout.REPORT).read_text()
    assert page.index('data-name="refund"') < page.index('data-name="late"')
    assert "Rows of eval that have the features and the label of a row of train: 40" in page


TWEETS = """\
name: tweets
format: csv
csv: {header: present, missing: [""]}
features:
  - {name: airline, kind: category}
  - {name: reason, kind: category, missing: unknown}
  - {name: reason_confidence, kind: numeric, transform: none, missing: mean}
  - {name: retweets, kind: numeric, transform: none, missing: mean}
  - {name: flagged, kind: category, missing: unknown}
label: {name: sentiment, kind: category}
split: {by: row, train: 1.0, eval: 0.0, test: 0.0}
"""


def tweets(rows: int) -> pd.DataFrame:
    """A class of which two features are written alone, one that lacks a value, a rare one that is flagged."""
    drawn = np.random.default_rng(6)
    sentiment = drawn.choice(["negative", "neutral", "positive", "spam"], rows, p=[0.6, 0.2, 0.17, 0.03])
    negative = sentiment == "negative"
    confidence = np.where(drawn.random(rows) < 0.5, 0.0, np.nan)
    return pd.DataFrame(
        {
            "airline": drawn.choice(["Delta", "United", "American"], rows),
            "reason": np.where(negative, drawn.choice(["late", "lost", "rude"], rows), ""),
            "reason_confidence": np.where(negative, drawn.uniform(0.3, 1, rows), confidence).round(4),
            "retweets": np.where(sentiment == "positive", np.nan, drawn.poisson(1, rows)),
            "flagged": np.where(sentiment == "spam", "yes", ""),
            "sentiment": sentiment,
        }
    )


def test_a_feature_that_tells_one_class_of_several(tmp_path: Path, capsys) -> None:
    """By its values or by lacking one, against scikit-learn; a class of less than a twentieth does not count."""
    rows = tweets(4_000)
    rows.to_csv(tmp_path / "tweets.csv", index=False)
    (tmp_path / "schema.yaml").write_text(TWEETS)
    dataset = run(tmp_path, "tweets.csv", tmp_path / "out")
    leakage = read_leakage(dataset.path, dataset.manifest)
    assert leakage is not None
    features = {feature["name"]: feature for feature in leakage["label"]["features"]}
    shares = rows["sentiment"].value_counts(normalize=True)
    scores = rows.assign(reason=rows["reason"] != "", retweets=rows["retweets"].isna()).fillna(-1)
    for name, of in (("reason", "negative"), ("reason_confidence", "negative"), ("retweets", "positive")):
        (tells,) = features[name]["tells"]
        area = roc_auc_score(rows["sentiment"] == of, scores[name])
        assert tells["class"] == of
        assert tells["auc"] == area == 1.0
        assert tells["share"] == pytest.approx(shares[of], abs=1e-6)
        assert features[name]["auc"] <= leakage["label"]["limit"], "of all classes it tells less"
    assert features["flagged"]["best"] == {"class": "spam", "auc": 1.0}
    assert {name for name, feature in features.items() if feature["leaks"]} == {
        "reason",
        "reason_confidence",
        "retweets",
    }
    warned = {w.feature: w.message for w in dataset.manifest.warnings if w.code == "tells_label"}
    assert warned.keys() == {"reason", "reason_confidence", "retweets"}
    assert re.fullmatch(
        r"reason_confidence: alone it tells the class 'negative' \(\d\d\.\d % of the rows\) of sentiment from the rest "
        r"with an AUC of 1\.0000 in the train split\. If it is not known when a prediction is made, declare it "
        r"`kind: ignore`\.",
        warned["reason_confidence"],
    )
    assert leakage["label"]["rare_classes"] == 0
    assert dataset_command(["show", dataset.path]) == 0
    shown = capsys.readouterr().out
    assert "equal rows in two splits: not judged, because there is one split (all 4,000 rows)" in shown
    (line,) = [line for line in shown.splitlines() if "features that tell the label" in line]
    assert "reason_confidence (of 'negative')" in line
    assert "retweets (of 'positive')" in line
    assert "negative against the rest: 1.0000" in Path(dataset.run_dir, layout.REPORT).read_text()


def record_at(place: dict[str, Any]) -> str:
    """The record that begins at a byte of a file."""
    return Path(place["path"]).read_bytes()[place["offset"] :].split(b"\n")[0].decode()


def test_a_split_by_row_leaves_no_equal_rows_with_one_label(tmp_path: Path) -> None:
    """Equal rows with different keys are in different splits; without the key they are in one, by their hash."""
    files = parcels(tmp_path / "raw")
    every = pd.concat([files["train"], files["train"].assign(parcel=lambda frame: frame["parcel"] + "b")])
    shutil.rmtree(tmp_path / "raw")
    (tmp_path / "raw").mkdir()
    every.to_csv(tmp_path / "raw" / "all.csv", index=False)
    by_row = SCHEMA[: SCHEMA.index("split:")] + "split: {by: row, train: 0.5, eval: 0.5, test: 0.0}\n"
    shares = {}
    for name, schema in (("with_key", by_row), ("without", by_row.replace("kind: key", "kind: ignore"))):
        (tmp_path / "raw" / "schema.yaml").write_text(schema)
        dataset = run(tmp_path / "raw", "all.csv", tmp_path / name)
        leakage = read_leakage(dataset.path, dataset.manifest)
        assert leakage is not None
        shares[name] = sum(entry["records"] / entry["of"] for entry in leakage["rows"]["equal"])
    assert shares["without"] == 0
    assert 0.4 < shares["with_key"] < 0.6


def test_a_job_that_was_told_not_to_look(tmp_path: Path, capsys) -> None:
    parcels(tmp_path / "raw")
    argv = ["--schema", str(tmp_path / "raw/schema.yaml"), "--input", str(tmp_path / "raw/*.csv"), "--quiet", "--json"]
    argv += ["--output", str(tmp_path / "out"), "--no_leakage", "--no_statistics"]
    assert preprocess(argv) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["leakage"] is None
    assert [warning["code"] for warning in described["warnings"] if warning["code"].startswith("equal")] == []


def test_the_same_rows_elsewhere_give_the_same_figures(tmp_path: Path) -> None:
    """In another folder the same records in the same order, too; in files of other names the same figures.

    There are more rows than the sample holds, so that another sample would tell another AUC.
    """
    drawn = np.random.default_rng(4)
    late = drawn.choice(["no", "yes"], 11_000, p=[0.7, 0.3])
    rows = pd.DataFrame(
        {
            "parcel": np.arange(len(late)) // 2,
            "depot": drawn.choice(["Aarhus", "Basel"], len(late)),
            "weight": (drawn.normal(size=len(late)) + (late == "yes")).round(1),
            "refund": np.where(drawn.random(len(late)) < 0.1, "1", ""),
            "late": late,
        }
    )
    leakages, figures, stored = [], [], []
    for place, names in (("here", "ab"), ("there/and/elsewhere", "ab"), ("renamed", "xy")):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        by_row = SCHEMA[: SCHEMA.index("split:")] + "split: {by: row, train: 0.8, eval: 0.1, test: 0.1}\n"
        (folder / "schema.yaml").write_text(by_row)
        for name, part in zip(names, (rows[:7_000], rows[7_000:]), strict=True):
            part.to_csv(folder / f"{name}.csv", index=False)
        dataset = run(folder, "*.csv", folder / "out", range_mb=0.02)
        leakages.append(json.loads(json.dumps(read_leakage(dataset.path, dataset.manifest)).replace(str(folder), "")))
        figures.append(json.loads(Path(dataset.run_dir, layout.STATISTICS_JSON).read_text()))
        stored.append(examples(dataset, "eval"))
    assert leakages[0]["label"]["rows"] == 8192 < dataset.rows("train")
    assert leakages[0] == leakages[1]
    assert [counts(leakage) for leakage in leakages] == [counts(leakages[0])] * 3
    assert figures[0] == figures[1]
    for first, renamed in zip(figures[0]["features"], figures[2]["features"], strict=True):  # in another order
        for split, described in first["splits"].items():
            names = {"count", "missing", "min", "max", "zeros", "distinct", "histogram"} & described.keys()
            assert {name: renamed["splits"][split][name] for name in names} == {n: described[n] for n in names}
    assert stored[0] == stored[1]


def counts(node: Any) -> Any:
    """What was found, without the places of examples."""
    if isinstance(node, list):
        return [counts(item) for item in node]
    return {k: counts(v) for k, v in node.items() if k != "examples"} if isinstance(node, dict) else node


def test_a_damaged_file_is_named(leaking: tuple[OpenDataset, dict[str, pd.DataFrame]], tmp_path: Path) -> None:
    dataset, _ = leaking
    shutil.copytree(dataset.path, tmp_path / "copy")
    path = tmp_path / "copy" / dataset.run / layout.LEAKAGE
    for data, message in ((b"{", "cannot be read"), (b'{"format_version": 9}', "is of format version 9")):
        path.write_bytes(data)
        with pytest.raises(MillraceError, match=f"leakage.json: {message}"):
            read_leakage(str(tmp_path / "copy"), dataset.manifest)


def test_images_with_copies(tmp_path: Path, capsys) -> None:
    """Three copies of a file, one of them with another label; one that was compressed again; and two of their own."""
    drawn = np.random.default_rng(1)
    for label in ("cats", "dogs"):
        (tmp_path / "raw" / label).mkdir(parents=True)
        for i in range(12):
            cells = drawn.integers(0, 255, (12, 12, 3), np.uint8)
            picture = PIL.Image.fromarray(cells).resize((90 + i, 80), PIL.Image.Resampling.BICUBIC)
            picture.save(tmp_path / "raw" / label / f"{i}.png")
            if i < 6:
                picture.save(tmp_path / "raw" / label / f"{i}-again.jpg", quality=60)
    for name in ("cats/copy0.png", "cats/copy1.png", "cats/copy2.png", "dogs/other.png"):
        shutil.copy(tmp_path / "raw" / "cats" / "3.png", tmp_path / "raw" / name)
    (tmp_path / "raw" / "schema.yaml").write_text(
        "name: shapes\nformat: image_folder\nimages: {resize: {exact: [48, 48]}}\n"
        "split: {by: name, train: 0.5, eval: 0.25, test: 0.25}\n"
    )
    dataset = run(tmp_path / "raw", "*/*", tmp_path / "out")
    leakage = read_leakage(dataset.path, dataset.manifest)
    assert leakage is not None
    images = leakage["images"]
    assert (images["records"], images["repeated"], images["compared_by_look"]) == (40, 4, 40)
    assert images["two_labels"]["images"] == 1
    ((original, copy),) = images["two_labels"]["examples"]
    assert {original["label"], copy["label"]} == {"cats", "dogs"}
    pairs = [pair for entry in images["near"] for pair in entry["examples"]]
    names = {tuple(sorted(Path(image["path"]).stem.removesuffix("-again") for image in pair)) for pair in pairs}
    assert all(first == second or "3" in (first, second) for first, second in names)  # 3 has copies of other names
    page = Path(dataset.run_dir, layout.REPORT).read_text()
    assert page.count('src="data:image/jpeg;base64,') >= 2 * len(pairs)
    assert dataset_command(["show", dataset.path]) == 0
    assert "equal images with two labels: 1" in capsys.readouterr().out
