"""A schema that was written from data runs as it stands."""

from __future__ import annotations

import shlex

import pytest

from beam_jobs.preprocess import main as preprocess
from schemas.dataset import open_dataset
from schemas.init.command import main
from tests.support.declared_by_hand import FIXTURES


@pytest.mark.slow
def test_the_next_step_that_is_told_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(FIXTURES / "penguins-raw.csv"), "--label", "Species", "--output", "schema.yaml"]) == 0
    told = shlex.split(capsys.readouterr().err.splitlines()[-1])
    assert told[:3] == ["python", "-m", "beam_jobs.preprocess"]
    assert preprocess([*told[3:], "--quiet"]) == 0
    dataset = open_dataset("data/")
    assert (dataset.manifest.read, dataset.manifest.rejected) == (344, 0)
    assert {warning.code for warning in dataset.manifest.warnings} == {"tells_label"}  # of single species
    assert all(dataset.rows(split) for split in ("train", "eval", "test"))
