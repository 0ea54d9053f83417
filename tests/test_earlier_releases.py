"""What release 0.1.0 wrote (`fixtures/v0_1_0`) opens, verifies, trains and serves for ever after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from beam_jobs import preprocess
from schemas.dataset import open_dataset
from schemas.dataset.verify import verify_dataset
from tests.support.dataset_faults import assert_every_damage_is_found
from trainer import predict, task, verify

FIXTURES = Path(__file__).parent / "fixtures" / "v0_1_0"


@pytest.fixture(params=["csv", "images"])
def release(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a fixture's folder: `data`, `model` and the raw input. Tests run in it."""
    copy = Path(shutil.copytree(FIXTURES / request.param, tmp_path / request.param))
    monkeypatch.chdir(copy)
    return copy


def export_of(release: Path) -> Path:
    (export,) = (p for p in (release / "model/export/best").iterdir() if p.is_dir())
    return export


def raw_input(release: Path) -> list[str]:
    if release.name == "csv":
        return [str(release / "raw.csv")]
    return sorted(str(p) for p in (release / "files").iterdir())


def test_a_dataset_opens_and_verifies(release: Path) -> None:
    dataset = open_dataset(str(release / "data"))
    assert dataset.rows("train") == {"csv": 226, "images": 31}[release.name]
    assert verify_dataset(str(release / "data")) == []


@pytest.mark.slow
def test_an_export_of_an_earlier_release_predicts_the_same(release: Path) -> None:
    wanted = ["--saved_model", str(export_of(release)), "--input", *raw_input(release)]
    assert predict.main([*wanted, "--output", "predictions.jsonl"]) == 0
    lines = [json.loads(line) for line in (release / "predictions.jsonl").read_text().splitlines()]
    expected = [json.loads(line) for line in (release / "predictions.jsonl.expected").read_text().splitlines()]
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        assert line["class"] == wanted["class"]
        assert line.get("offset") == wanted.get("offset")
        if release.name == "csv":
            found, want = (list(x["probabilities"].values()) for x in (line, wanted))
            np.testing.assert_allclose(found, want, rtol=1e-5)


@pytest.mark.slow
def test_training_resumes_and_exports_anew(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, steps = ("dnn", 62) if release.name == "csv" else ("softmax", 32)  # two more than the release trained
    hparams = ("--hparams", "hidden_units=8") if model == "dnn" else ("--batch_size", "8")
    argv = ["--data_dir", "data", "--model_dir", "model", "--model", model, *hparams, "--seed", "1"]
    assert task.main([*argv, "--max_steps", str(steps)]) == 0
    assert (release / f"model/model.ckpt-{steps}.index").exists()
    (final,) = (release / "model/export/final").iterdir()
    capsys.readouterr()
    assert verify.main(["--data_dir", "data", "--saved_model", str(final)]) == 0
    assert "earlier release" not in capsys.readouterr().err


@pytest.mark.slow
def test_an_export_verifies_with_the_advice_to_export_again(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--data_dir", "data", "--saved_model", str(export_of(release))]) == 0
    told = capsys.readouterr()
    assert "no skew" in told.out
    assert "export the model again" in told.err


@pytest.mark.slow
@pytest.mark.parametrize("release", ["csv"], indirect=True)
def test_rejects_are_replayed(release: Path) -> None:
    (rejects,) = (release / "data").glob("*/rejects-00000.jsonl")
    corrected = [json.loads(line) for line in rejects.read_text().splitlines()]
    for reject in corrected:
        reject["raw"] = reject["raw"].replace("heavy", "12.5").replace("perhaps", "no")
    (release / "corrected.jsonl").write_text("".join(f"{json.dumps(reject)}\n" for reject in corrected))
    assert preprocess.main(["--replay", "corrected.jsonl", "--append_to", "data"]) == 0
    assert open_dataset(str(release / "data")).manifest.written == 302
    assert_every_damage_is_found(release / "data", release)
