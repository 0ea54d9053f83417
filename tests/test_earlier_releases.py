"""What release 0.1.0 wrote (`fixtures/v0_1_0`) opens, verifies, trains and serves for ever after."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from schemas.dataset import open_dataset
from schemas.dataset.verify import verify_dataset

FIXTURES = Path(__file__).parent / "fixtures" / "v0_1_0"


@pytest.fixture(params=["csv", "images"])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a fixture's folder: `data`, `model` and the raw input."""
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / request.param))


def run(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root), "HOME": str(cwd), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


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
def test_an_export_predicts_what_it_did(release: Path) -> None:
    done = run(
        "trainer.predict", "--saved_model", str(export_of(release)), "--input", *raw_input(release),
        "--output", "predictions.jsonl", cwd=release,
    )  # fmt: skip
    lines = [json.loads(line) for line in (release / "predictions.jsonl").read_text().splitlines()]
    expected = [json.loads(line) for line in (release / "predictions.jsonl.expected").read_text().splitlines()]
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        assert line["class"] == wanted["class"]
        assert line.get("offset") == wanted.get("offset")
        if release.name == "csv":
            found, want = (list(x["probabilities"].values()) for x in (line, wanted))
            np.testing.assert_allclose(found, want, rtol=1e-5)
    assert done.returncode == 0


@pytest.mark.slow
def test_training_resumes_and_exports_anew(release: Path) -> None:
    model = "dnn" if release.name == "csv" else "softmax"
    hparams = ("--hparams", "hidden_units=8") if model == "dnn" else ("--batch_size", "8")
    run(
        "trainer.task", "--data_dir", "data", "--model_dir", "model", "--model", model, *hparams, "--max_steps", "80",
        "--seed", "1", cwd=release,
    )  # fmt: skip
    assert (release / "model/model.ckpt-80.index").exists()
    (final,) = (release / "model/export/final").iterdir()
    done = run("trainer.verify", "--data_dir", "data", "--saved_model", str(final), cwd=release)
    assert "earlier release" not in done.stderr


@pytest.mark.slow
def test_an_export_verifies_with_the_advice_to_export_again(release: Path) -> None:
    done = run("trainer.verify", "--data_dir", "data", "--saved_model", str(export_of(release)), cwd=release)
    assert "no skew" in done.stdout
    assert "export the model again" in done.stderr


@pytest.mark.slow
def test_rejects_are_replayed(tmp_path: Path) -> None:
    release = Path(shutil.copytree(FIXTURES / "csv", tmp_path / "csv"))
    (rejects,) = (release / "data").glob("*/rejects-00000.jsonl")
    corrected = [json.loads(line) for line in rejects.read_text().splitlines()]
    for reject in corrected:
        reject["raw"] = reject["raw"].replace("heavy", "12.5").replace("perhaps", "no")
    (release / "corrected.jsonl").write_text("".join(f"{json.dumps(reject)}\n" for reject in corrected))
    run("beam_jobs.preprocess", "--replay", "corrected.jsonl", "--append_to", "data", cwd=release)
    assert open_dataset(str(release / "data")).manifest.written == 302
    assert verify_dataset(str(release / "data")) == []
