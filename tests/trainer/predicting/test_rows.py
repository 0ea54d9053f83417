"""Raw CSV rows in, JSON lines out."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.predicted import predicting, read_lines, read_rejects
from trainer import predict
from trainer.predicting.options import PredictOptions


@pytest.fixture
def run(titanic_model, tmp_path):
    return predicting(titanic_model.export, tmp_path)


@pytest.fixture(scope="module")
def lines(titanic_model, titanic_csv, tmp_path_factory) -> list[dict]:
    """The command's predictions of the whole file."""
    output = tmp_path_factory.mktemp("predicted") / "p.jsonl"
    argv = ["--saved_model", str(titanic_model.export), "--input", str(titanic_csv), "--output", str(output)]
    assert predict.main(argv) == 0
    return read_lines(output)


class TestRows:
    def test_a_line_for_each_row_in_order_with_the_rows_position(self, lines, titanic_csv):
        assert [line["row"] for line in lines] == list(range(1000))
        raw = titanic_csv.read_bytes()
        for line in lines[:5] + lines[-5:]:
            record = raw[line["offset"] :].split(b"\n")[0].decode()
            assert line["key"].replace('"', '""') in record
        assert {line["source"] for line in lines} == {str(titanic_csv)}

    def test_classes_under_their_own_names_and_most_of_them_right(self, lines, titanic_csv):
        for line in lines:
            probabilities = line["probabilities"]
            assert set(probabilities) == {"0", "1"}
            assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
            assert line["class"] == max(probabilities, key=probabilities.get)
        labels = [record.split(",")[1] for record in titanic_csv.read_text().splitlines()[1:]]
        assert np.mean([line["class"] == label for line, label in zip(lines, labels, strict=True)]) > 0.7

    @pytest.mark.slow
    def test_the_same_by_other_batches(self, run, lines, titanic_csv, tmp_path):
        assert run(titanic_csv, more=("--batch_size", "7")) == 0
        for a, b in zip(lines, read_lines(tmp_path / "p.jsonl"), strict=True):
            assert b.pop("probabilities") == pytest.approx(a["probabilities"], rel=1e-4, abs=1e-6)
            assert {**b, "probabilities": a["probabilities"]} == a

    def test_the_label_may_be_absent(self, run, lines, titanic_csv, tmp_path):
        """Of the first ten rows."""
        rows = (line.split(",", 2) for line in titanic_csv.read_text().splitlines()[:11])
        unlabelled = tmp_path / "unlabelled.csv"
        unlabelled.write_text("".join(f"{pclass},{rest}\n" for pclass, _, rest in rows))
        assert "survived" not in unlabelled.read_text()
        assert run(unlabelled) == 0
        predictions = [(line["key"], line["class"]) for line in read_lines(tmp_path / "p.jsonl")]
        assert predictions == [(line["key"], line["class"]) for line in lines[:10]]

    def test_several_files_gzipped_and_by_glob(self, run, lines, titanic_csv, tmp_path):
        folder = tmp_path / "raw"
        folder.mkdir()
        (folder / "a.csv").write_bytes(titanic_csv.read_bytes())
        (folder / "b.csv.gz").write_bytes(gzip.compress(titanic_csv.read_bytes()))
        assert run(folder / "*.csv*") == 0
        predictions = read_lines(tmp_path / "p.jsonl")
        assert [Path(line["source"]).name for line in predictions] == ["a.csv"] * 1000 + ["b.csv.gz"] * 1000
        own = ("row", "offset", "key", "class")
        assert [[line[n] for n in own] for line in predictions] == [[line[n] for n in own] for line in (*lines, *lines)]

    def test_csv_where_the_outputs_name_says_so(self, run, lines, titanic_csv, tmp_path):
        assert run(titanic_csv, output="p.csv", more=("--batch_size", "300")) == 0
        frame = pd.read_csv(tmp_path / "p.csv", dtype={"class": str})
        assert list(frame) == ["source", "offset", "row", "key", "class", "probability_0", "probability_1"]
        for name in ("offset", "row", "key", "class"):
            assert frame[name].tolist() == [line[name] for line in lines]
        assert frame["probability_1"].tolist() == pytest.approx([line["probabilities"]["1"] for line in lines], 1e-4)
        assert (tmp_path / "p.rejects.jsonl").exists()


class TestRejects:
    @pytest.fixture
    def dirty(self, titanic_csv, tmp_path) -> Path:
        """Twenty good rows, and bad ones at the rows 2, 5 and 22."""
        lines = titanic_csv.read_text().splitlines(keepends=True)[:21]
        lines.insert(3, "too,few\n")
        lines.insert(6, '1,0,"A, B",female,29,many,0,PC 1,1.5,?,S,?,?,?\n')
        path = tmp_path / "dirty.csv"
        path.write_text("".join(lines) + "1,1\n")
        return path

    def test_each_row_is_predicted_or_rejected(self, run, dirty, tmp_path, capsys):
        assert run(dirty) == 0
        rejects = read_rejects(tmp_path / "p.rejects.jsonl")
        assert [(r.reason, r.column, r.raw[:7]) for r in rejects] == [
            ("too_few_columns", None, b"too,few"),
            ("not_a_number", "sibsp", b'1,0,"A,'),
            ("too_few_columns", None, b"1,1"),
        ]
        rows = [line["row"] for line in read_lines(tmp_path / "p.jsonl")]
        assert rows == [row for row in range(23) if row not in (2, 5, 22)]
        assert "2 too_few_columns" in capsys.readouterr().out

    def test_too_many_leave_the_rejects_and_no_predictions(self, run, dirty, tmp_path, capsys):
        assert run(dirty, more=("--max_rejects", "0", "--max_reject_fraction", "0.01")) == 1
        assert "error: rejected " in capsys.readouterr().err
        assert set(os.listdir(tmp_path)) == {"dirty.csv", "p.rejects.jsonl"}

    @pytest.mark.parametrize(
        ("rows", "more", "messages"),
        [
            (b"", (), ["none.csv.gz: the input contains no records; expected at least one"]),
            (
                b"a\nb\n",
                ("--max_reject_fraction", "1"),
                ["(2 too_few_columns), so there is nothing to write", "; no predictions were written. Fix the rows.\n"],
            ),
        ],
    )
    def test_no_prediction_is_a_failure(self, run, titanic_csv, tmp_path, capsys, rows, more, messages):
        none = tmp_path / "none.csv.gz"
        none.write_bytes(gzip.compress(titanic_csv.read_bytes().partition(b"\n")[0] + b"\n" + rows))
        assert run(none, more=more) == 1
        output = capsys.readouterr().err
        assert all(part in output for part in messages)
        assert not (tmp_path / "p.jsonl").exists()
        assert (tmp_path / "p.rejects.jsonl").exists() == bool(rows)

    def test_a_dataset_gets_no_other_files(self, run, titanic, titanic_csv, capsys):
        assert run(titanic_csv, output=f"{titanic.path}/more/p.jsonl") == 2
        assert f"p.jsonl: lies in {titanic.path}, which holds a dataset; use another folder" in capsys.readouterr().err


class TestAskedWrongly:
    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (("--max_reject_fraction", "2"), "--max_reject_fraction 2: must be from 0 to 1"),
            (("--saved_model", "nowhere"), "nowhere: no such folder"),
            (("--output", "x.parquet"), "predict writes CSV (.csv) and JSON lines; for Parquet and TFRecords use"),
            (("--input", "nowhere/*.csv"), "nowhere/*.csv"),
        ],
    )
    def test_reports_the_error_and_leaves_nothing(self, run, titanic_csv, capsys, more, message):
        assert run(titanic_csv, output="made/p.jsonl", more=more) == 2
        assert message in capsys.readouterr().err

    def test_an_output_that_exists_is_kept(self, run, titanic_csv, tmp_path, capsys):
        (tmp_path / "p.jsonl").write_text("precious")
        assert run(titanic_csv) == 2
        assert "already exists; give --overwrite" in capsys.readouterr().err
        assert (tmp_path / "p.jsonl").read_text() == "precious"
        assert run(titanic_csv, more=("--overwrite",)) == 0
        out = capsys.readouterr().out
        assert "predicted  1,000" in out
        ended = r"time       1,000 rows in [0-9.]+ s \([0-9,]+ rows/s\), after [0-9.]+ s of start-up"
        assert re.fullmatch(ended, out.splitlines()[-1])
        assert len(read_lines(tmp_path / "p.jsonl")) == 1000


def test_the_progress_says_which_share_of_all_files_is_done(titanic_model, titanic_csv, tmp_path) -> None:
    plain, again = tmp_path / "a.csv", tmp_path / "b.csv.gz"  # which are read in the order of their names
    plain.write_bytes(titanic_csv.read_bytes())
    again.write_bytes(gzip.compress(titanic_csv.read_bytes()))
    options = PredictOptions(
        saved_model=str(titanic_model.export),
        inputs=(str(plain), str(again)),
        output=str(tmp_path / "p.jsonl"),
        rejects=str(tmp_path / "rejects.jsonl"),
        batch_size=100,
    )
    progress: list[tuple[int, float]] = []
    predict.predict(options, progress=lambda summary: progress.append((summary.read, summary.done)))
    read, shares = zip(*progress, strict=True)
    assert read == tuple(range(100, 2001, 100))
    assert shares == tuple(sorted(shares))
    first = plain.stat().st_size / (plain.stat().st_size + again.stat().st_size)
    assert shares[:10] == pytest.approx([first * part / 10 for part in range(1, 11)], abs=0.01)
    assert shares[-1] == 1.0
