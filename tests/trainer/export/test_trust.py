"""A graph is loaded only when the manifest beside it names it and its checksums match: loading runs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_jobs import preprocess
from schemas.dataset import layout, open_dataset
from schemas.errors import MillraceError
from schemas.exports.model import ServedModel
from schemas.exports.notes import NOTES_PATH, check_files, read_notes
from tests.support.training import run
from trainer import predict, verify
from trainer.export.image_receivers import load_ingest

VARIABLES = "variables/variables.data-00000-of-00001"


def change(path: Path) -> None:
    """One bit, so that the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def link(export: Path, name: str) -> None:
    """Moves a file or a folder of an export elsewhere, and puts a link in its place."""
    elsewhere = Path(f"{export}.elsewhere")
    if (export / name).exists():
        shutil.move(export / name, elsewhere)
    (export / name).symlink_to(elsewhere)


def earlier_format(export: Path) -> None:
    notes = export / NOTES_PATH
    notes.write_text(notes.read_text().replace('"format_version": 4', '"format_version": 1'))


def copied(dataset, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the dataset, and its run's folder."""
    out = Path(shutil.copytree(dataset.path, tmp_path / "out"))
    return out, out / dataset.run


class TestDataSet:
    @pytest.mark.parametrize("name", ["saved_model.pb", "assets/work", "variables/variables.index"])
    def test_training_on_a_changed_transform_is_refused(self, people, tmp_path, capsys, name):
        out, run_dir = copied(people, tmp_path)
        file = next(path for path in (run_dir / "transform_fn").rglob("*") if str(path).endswith(name))
        change(file)
        assert run(open_dataset(str(out)), tmp_path / "model") == 1
        assert f"{file}: was changed: its SHA-256 is " in capsys.readouterr().err

    def test_an_added_file_is_refused(self, people, tmp_path, capsys):
        out, run_dir = copied(people, tmp_path)
        shutil.copy(run_dir / "transform_fn" / "saved_model.pb", run_dir / "transform_fn" / "saved_model.cpb")
        assert run(open_dataset(str(out)), tmp_path / "model") == 1
        assert "saved_model.cpb: is not named by manifest.json" in capsys.readouterr().err

    def test_a_changed_ingest_graph_is_refused(self, colors, tmp_path):
        out, run_dir = copied(colors, tmp_path)
        change(run_dir / layout.INGEST_FN / "saved_model.pb")
        with pytest.raises(MillraceError, match=r"ingest_fn/saved_model\.pb: was changed"):
            load_ingest(open_dataset(str(out)))

    def test_verify_too(self, titanic, titanic_model, tmp_path, capsys):
        out, run_dir = copied(titanic, tmp_path)
        change(run_dir / "transform_fn" / "saved_model.pb")
        assert verify.main(["--data_dir", str(out), "--saved_model", str(titanic_model.export)]) == 1
        assert "transform_fn/saved_model.pb: was changed" in capsys.readouterr().err

    def test_and_the_job_that_would_apply_it(self, people, people_csv, tmp_path, capsys):
        out, run_dir = copied(people, tmp_path)
        change(run_dir / "transform_fn" / "saved_model.pb")
        argv = ["--schema", str(run_dir / layout.SCHEMA_YAML), "--input", str(people_csv), "--quiet"]
        argv += ["--output", str(tmp_path / "new"), "--transform_from", str(out)]
        assert preprocess.main(argv) == 2
        assert "transform_fn/saved_model.pb: was changed" in capsys.readouterr().err
        assert not (tmp_path / "new" / layout.MANIFEST).exists()


class TestExport:
    @pytest.fixture
    def export(self, titanic_model, tmp_path) -> Path:
        return Path(shutil.copytree(titanic_model.export, tmp_path / "served" / "1"))

    @pytest.fixture
    def commands(self, titanic, titanic_model, titanic_csv, tmp_path) -> Callable[[Path], list[int]]:
        """Runs predict and verify on an export; gives their exit codes."""

        def run_both(export: Path) -> list[int]:
            saved = ["--saved_model", str(export)]
            more = ["--data_dir", titanic.path, "--model_dir", str(titanic_model.model_dir)]
            output = ["--input", str(titanic_csv), "--output", str(tmp_path / "predictions.jsonl"), "--overwrite"]
            return [predict.main([*saved, *output]), verify.main([*saved, *more])]

        return run_both

    def test_its_notes_name_every_other_file(self, titanic_model):
        _, notes = read_notes(str(titanic_model.export))
        lying_there = {str(p.relative_to(titanic_model.export)) for p in titanic_model.export.rglob("*") if p.is_file()}
        assert set(notes.files) == lying_there - {"assets.extra/millrace.json"}
        check_files(str(titanic_model.export), notes)

    def test_a_copy_is_as_good_and_so_is_a_link_to_it(self, export, commands, tmp_path):
        assert commands(export) == [0, 0]
        (tmp_path / "latest").symlink_to(export)
        assert commands(tmp_path / "latest") == [0, 0]

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda e: change(e / "saved_model.pb"), "{}/saved_model.pb: was changed: its SHA-256 is "),
            (lambda e: change(e / VARIABLES), f"{{}}/{VARIABLES}: was changed: its SHA-256 is "),
            (lambda e: (e / "saved_model.cpb").write_bytes(b"x"), f"saved_model.cpb: is not named by {NOTES_PATH}"),
            (lambda e: (e / "variables" / "variables.index").unlink(), f"missing, but {NOTES_PATH} names it"),
            (lambda e: link(e, "variables"), "{}/variables: is a link to {}.elsewhere"),
            (lambda e: link(e, "saved_model.pb"), "{}/saved_model.pb: is a link to {}.elsewhere"),
            (lambda e: link(e, "more"), "{}/more: is a link to {}.elsewhere"),
            (earlier_format, "has another format version"),
        ],
    )
    def test_a_damaged_one_is_refused(self, export, commands, tmp_path, capsys, damage, said):
        damage(export)
        assert commands(export) == [1, 1]
        assert capsys.readouterr().err.count(said.replace("{}", str(export))) == 2
        assert not (tmp_path / "predictions.jsonl").exists()
        with pytest.raises(MillraceError):
            ServedModel(str(export))
