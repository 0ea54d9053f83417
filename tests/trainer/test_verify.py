"""The proof that what is served is what was trained on, how it fails, and which difference it names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from schemas.dataset import OpenDataset, layout, open_dataset
from schemas.errors import MillraceError, SkewError
from tests.support.written_records import change_records, copy_of
from trainer import verify
from trainer.export.skew_check import (
    check_export,
    check_transform,
    first_difference,
    read_parity_records,
    stored_predictions,
)


@pytest.fixture
def copied(people, tmp_path) -> OpenDataset:
    """The dataset, to be changed."""
    return copy_of(people, tmp_path)


def add_to_age(features):
    features["age"].float_list.value[0] += 0.5


def other_key(features):
    features["id"].bytes_list.value[0] = b"someone else"


def another_word(features):
    features["words"].int64_list.value.append(1)


def other_label(features):
    features["income"].int64_list.value[0] = 1 - features["income"].int64_list.value[0]


class TestTransform:
    @pytest.mark.parametrize(
        ("change", "feature"),
        [(add_to_age, "age"), (other_key, "id"), (another_word, "words"), (other_label, "income")],
    )
    def test_a_difference_is_named_by_record_feature_and_both_values(self, copied, change, feature):
        change_records(copied, layout.PARITY_TRANSFORMED, 3, change)
        with pytest.raises(SkewError, match=rf"skew: record 3, '{feature}': expected .*, found .*do not serve it"):
            check_transform(copied, read_parity_records(copied))


class TestExport:
    def check(self, dataset, export, estimator):
        records = read_parity_records(dataset)
        check_export(
            dataset,
            records,
            export_dir=export,
            predictions=stored_predictions(dataset, records, estimator),
            checkpoint_path=estimator.latest_checkpoint(),
        )

    def test_the_signatures_predict_what_the_estimator_does(self, people, people_export, people_estimator):
        self.check(people, people_export, people_estimator)

    @pytest.mark.slow
    def test_another_models_export_is_found_out(self, people, people_export, make_estimator):
        with pytest.raises(SkewError, match=r"record 0, 'probabilities|record 0, 'logits|record \d+, 'class"):
            self.check(people, people_export, make_estimator(people, steps=1))


class TestRecords:
    def test_an_empty_file_is_refused(self, copied):
        for name in (layout.PARITY_RAW, layout.PARITY_TRANSFORMED):
            Path(layout.join(copied.run_dir, name)).write_bytes(b"")
        with pytest.raises(MillraceError, match="0 raw and 0 transformed parity records"):
            read_parity_records(copied)

    def test_a_damaged_file_is_named(self, copied):
        path = Path(layout.join(copied.run_dir, layout.PARITY_RAW))
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(MillraceError, match=r"parity/raw\.tfrecord: cannot be read"):
            read_parity_records(copied)


class TestCommand:
    def test_an_export_that_was_moved_needs_its_model_dir(self, titanic, titanic_model, tmp_path, capsys):
        moved = str(shutil.copytree(titanic_model.export, tmp_path / "served" / "1"))
        argv = ["--data_dir", titanic.path, "--saved_model", moved]
        assert verify.main(argv) == 2
        assert "set --model_dir" in capsys.readouterr().err
        assert verify.main([*argv, "--model_dir", str(titanic_model.model_dir)]) == 0
        assert capsys.readouterr().out.startswith("no skew: ")

    def test_skew(self, titanic, titanic_model, tmp_path, capsys):
        path = str(shutil.copytree(titanic.path, tmp_path / "out"))

        def change(features):
            features["age"].float_list.value[0] += 1

        change_records(open_dataset(path), layout.PARITY_TRANSFORMED, 7, change)
        assert verify.main(["--data_dir", path, "--saved_model", str(titanic_model.export)]) == 1
        assert "skew: record 7, 'age': expected " in capsys.readouterr().err

    @pytest.mark.parametrize("missing", ["saved_model.pb", "assets.extra/millrace.json"])
    def test_an_incomplete_export_is_refused(self, titanic, titanic_model, tmp_path, capsys, missing):
        export = Path(shutil.copytree(titanic_model.export, tmp_path / "1"))
        (export / missing).unlink()
        assert verify.main(["--data_dir", titanic.path, "--saved_model", str(export)]) == 2
        assert f"no {missing}" in capsys.readouterr().err

    def test_notes_of_another_schema_are_refused(self, titanic, titanic_model, tmp_path, capsys):
        export = Path(shutil.copytree(titanic_model.export, tmp_path / "1"))
        notes = export / "assets.extra" / "millrace.json"
        notes.write_text(json.dumps({**json.loads(notes.read_text()), "schema_fingerprint": "0"}))
        assert verify.main(["--data_dir", titanic.path, "--saved_model", str(export)]) == 1
        assert "does not match schema.yaml next to it" in capsys.readouterr().err

    def test_the_data_of_another_schema_is_refused(self, people, titanic_model, capsys):
        assert verify.main(["--data_dir", people.path, "--saved_model", str(titanic_model.export)]) == 2
        error = capsys.readouterr().err
        assert f"was trained with another schema than that of {people.path} (name: " in error
        assert "features: pclass: only in the model" in error

    def test_a_folder_without_a_model_is_refused(self, titanic, titanic_model, tmp_path, capsys):
        argv = ["--data_dir", titanic.path, "--saved_model", str(titanic_model.export), "--model_dir", str(tmp_path)]
        assert verify.main(argv) == 2
        assert "no model.json" in capsys.readouterr().err


NAN = float("nan")


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"x": floats(1000, 0)}, {"x": floats(1000.09, 0.000009)}),  # rtol 1e-4, atol 1e-5
        ({"x": floats(NAN, 1)}, {"x": floats(NAN, 1)}),
        ({"x": np.array([3])}, {"x": np.array([3], np.int32)}),
        ({"x": np.array([b"a", b""], object)}, {"x": np.array([b"a", b""], object)}),
        ({"x": [np.array([1, 2]), np.array([], np.int64)]}, {"x": [np.array([1, 2]), np.array([], np.float32)]}),
    ],
)
def test_these_agree(expected, actual):
    assert first_difference(expected, actual) is None


@pytest.mark.parametrize(
    ("expected", "actual", "message"),
    [
        ({"x": floats(0, 1)}, {"x": floats(0, 1.01)}, "record 1, 'x': expected 1.0, found 1.01"),
        ({"x": floats(0, NAN)}, {"x": floats(0, 1)}, "record 1, 'x': expected nan, found 1.0"),
        ({"x": np.array([3, 4])}, {"x": np.array([3, 5])}, "record 1, 'x': expected 4, found 5"),
        ({"x": np.array([3])}, {"x": floats(3)}, "all records, 'x': expected int64, found float32"),
        ({"x": np.array([b"a"], object)}, {"x": np.array([b"a\0"], object)}, r"expected b'a', found b'a\x00'"),
        ({"x": floats([1, 2], [3, 4])}, {"x": floats([1, 2], [3, 5])}, "record 1, 'x[1]': expected 4.0, found 5.0"),
        ({"x": floats([1, 2])}, {"x": floats([1])}, "all records, 'x': expected shape [2], found shape [1]"),
        ({"x": floats(1)}, {"x": floats(1, 2)}, "all records, 'x': expected 1 record, found 2 records"),
        ({"x": floats(1)}, {}, "all records, 'x': expected a value, found none"),
        ({}, {"x": floats(1)}, "all records, 'x': expected none, found a value"),
        ({"x": [np.array([1]), np.array([2, 3])]}, {"x": [np.array([1]), np.array([2])]}, "record 1, 'x'"),
    ],
)
def test_these_differ_and_the_place_is_named(expected, actual, message):
    assert message in str(first_difference(expected, actual))


def test_the_first_feature_is_named_and_the_first_record_in_which_it_differs():
    expected = {"a": floats(0, 0, 0), "b": floats(0, 0, 0), "c": floats(0, 0, 0)}
    actual = {"a": floats(0, 0, 0), "b": floats(0, 9, 9), "c": floats(9, 9, 0)}
    assert first_difference(expected, actual) == "record 1, 'b': expected 0.0, found 9.0"
