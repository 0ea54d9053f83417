"""The doctor: which of input and model it finds at fault, what it names, and what it leaves behind."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pytest

from schemas.dataset import Dataset
from tests.told_at_once import assert_told_at_once
from trainer import doctor
from trainer.diagnosis import Diagnosis, Tried, differences
from trainer.turns import Cost, Length, Rounds

MODELS = "tests.trainer.paced_models"
BRIEF = ["--seconds", "2", "--rounds", "2", "--batch_size", "16"]


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def examined(dataset: Dataset, tmp_path: Path, *argv: str) -> dict:
    """What the command writes with --json."""
    figures = tmp_path / "figures.json"
    assert doctor.main(["--data_dir", dataset.path, *BRIEF, "--json", str(figures), *argv]) == 0
    return json.loads(figures.read_text())


class TestFinds:
    def test_a_heavy_model(self, people, tmp_path, scratch, capsys):
        found = examined(people, tmp_path, "--model", f"{MODELS}:heavy", "--seconds", "4", "--rounds", "5")
        assert found["bound_by"] == "model"
        assert found["share"] < 0.1
        assert found["memory"]["seconds"] > 10 * found["alone"]["seconds"]
        assert list(found["stages"]) == ["gather"]
        assert "Training is bound by the model: a step takes" in capsys.readouterr().out
        assert not list(scratch.glob("millrace-*"))

    def test_a_slow_input(self, stripes, tmp_path, scratch, capsys):
        """Large crops, colours and sizes changed for each, and a model that does next to nothing."""
        slow = ["--augment", "color_jitter=0.4", "resized_crop=0.5", "--seconds", "5"]
        found = examined(stripes, tmp_path, "--model", f"{MODELS}:trivial", *slow)
        assert found["bound_by"] == "input"
        assert found["costliest"] in ("decode and crop", "augment")  # of the two, by how many threads share an op
        assert list(found["stages"]) == ["read", "shuffle", "parse", "decode and crop", "augment", "batch"]
        tried = {t["setting"]: t for t in found["tried"]}
        gentle = tried["--augment color_jitter=0 resized_crop=none"]
        assert gentle["after"]["cpu"] < gentle["before"]["cpu"]
        out = capsys.readouterr().out
        assert "Training is bound by its input: a step takes" in out
        assert "images: {store: raw}" in out
        assert not list(scratch.glob("millrace-*"))

    def test_pairs(self, patterns, tmp_path):
        found = examined(patterns, tmp_path, "--model", "face_pairs", "--hparams", "width=4")
        assert found["training"]["seconds"] > 0
        assert "crop" in found["stages"]


class TestRefuses:
    @pytest.mark.parametrize(
        ("argv", "code", "message"),
        [
            (["--help"], 0, "hidden_units=256,256,128"),
            ([], 2, "required: --data_dir"),
            (["--data_dir", "d", "--rounds", "1"], 2, "--rounds 1: must be 2 or more"),
            (["--data_dir", "d", "--model", "cnn"], 2, "--model cnn: give linear, dnn"),
            (["--data_dir", "d"], 2, "d: no manifest.json"),
        ],
    )
    def test_in_a_second_and_a_half(self, argv, code, message):
        assert_told_at_once("trainer.doctor", argv, code=code, message=message)

    def test_a_model_that_fails(self, people, capsys, scratch):
        model = ["--model", "tests.trainer.own_models:nan_model_fn"]
        assert doctor.main(["--data_dir", people.path, *BRIEF, *model]) == 1
        assert "the loss became NaN" in capsys.readouterr().err
        assert not list(scratch.glob("millrace-*"))

    def test_a_cluster(self, people, monkeypatch, capsys):
        monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["a:1"]}}')
        assert doctor.main(["--data_dir", people.path]) == 2
        assert "unset it" in capsys.readouterr().err


def diagnosis(training: float, memory: float, alone: float, **more) -> Diagnosis:
    """Of milliseconds."""
    step, kept, batch = (Cost(x / 1e3, x / 1e3) for x in (training, memory, alone))
    return Diagnosis(batch_size=10, training=step, memory=kept, alone=batch, stages={"read": batch}, **more)


class TestVerdict:
    @pytest.mark.parametrize(
        ("training", "memory", "alone", "bound_by", "share"),
        [
            (10, 9.5, 2, "model", 0.05),
            (9, 10, 2, "model", 0.0),  # noise
            (10, 7, 5, "both", 0.3),
            (10, 7, 9.5, "input", 0.3),  # on an accelerator: the input cannot go faster than this
            (10, 2, 5, "input", 0.8),
        ],
    )
    def test_by_what_a_step_saves_from_memory(self, training, memory, alone, bound_by, share):
        found = diagnosis(training, memory, alone)
        assert (found.bound_by, pytest.approx(found.share)) == (bound_by, share)

    def test_advises_what_paid_only(self):
        before = Cost(0.010, 0.020)
        tried = (
            Tried("a", before, Cost(0.0099, 0.0199)),
            Tried("b", before, Cost(0.005, 0.010)),
            Tried("c", before, Cost(0.002, 0.030)),  # quicker, for more CPU
        )
        found = diagnosis(10, 2, 10, tried=tried, changed={"b": Cost(0.005, 0.01)})
        assert found.advice == [
            "b: the input alone takes 5.00 ms (10.00 ms of CPU) instead of 10.00 ms (20.00 ms of CPU); "
            "a training step takes 5.00 ms with it"
        ]

    def test_a_bound_model_is_advised_a_batch_that_is_faster(self):
        assert diagnosis(10, 10, 1, bigger=(40, Cost(0.039, 0.039))).advice == []
        (line,) = diagnosis(10, 10, 1, bigger=(40, Cost(0.020, 0.020))).advice
        assert line == "--batch_size 40: 2,000 examples/s instead of 1,000, from memory"

    def test_stages_are_what_each_adds(self):
        prefixes = {"read": Cost(2, 2), "shuffle": Cost(5, 6), "parse": Cost(4, 9), "input alone": Cost(4, 9)}
        assert differences(prefixes) == {"read": Cost(2, 2), "shuffle": Cost(3, 4), "parse": Cost(0, 3)}


class TestRounds:
    def test_all_have_their_turns_in_each_round(self):
        rounds = Rounds(("a", "b"), Length(seconds=1, rounds=3, steps=6))
        order = list(rounds)
        assert order == ["a"] * 3 + ["b"] * 3 + (["a"] * 8 + ["b"] * 8) * 3  # a third as many steps are not timed
        assert {way: len(costs) for way, costs in rounds.costs.items()} == {"a": 3, "b": 3}

    def test_costs_are_those_of_a_step(self):
        rounds = Rounds(("slow", "quick"), Length(seconds=0.4, rounds=2))
        for way in rounds:
            time.sleep(0.02 if way == "slow" else 0.002)
        costs = rounds.medians()
        assert 0.02 <= costs["slow"].seconds < 0.2
        assert costs["quick"].seconds < costs["slow"].seconds
        assert costs["slow"].cpu < 0.02

    def test_heavy_ways_are_left_out_where_they_take_too_long(self):
        rounds = Rounds(("a", "b"), Length(seconds=0.2, rounds=2), heavy={"b": 4})
        for _ in rounds:
            time.sleep(0.02)
        assert set(rounds.medians()) == {"a"}
