"""The doctor: which of input and model it finds at fault, what it names, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from schemas.dataset import Dataset
from tests.support import paced_models
from tests.support.light_commands import assert_light
from trainer import doctor
from trainer.data.input_options import input_options
from trainer.doctor import diagnose
from trainer.profiling.diagnosis import Diagnosis, Tried, differences
from trainer.profiling.source import measured
from trainer.profiling.turns import Clock, Cost, Length, Rounds
from trainer.spec.options import TrainOptions

pytestmark = pytest.mark.long

MODELS = "tests.support.paced_models"
BRIEF = ["--seconds", "1", "--rounds", "2", "--batch_size", "16", "--one_process"]


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
    @pytest.mark.slow
    def test_a_heavy_model(self, people, tmp_path, scratch):
        """By a clock on which a step of the model takes 40 ms, and all else next to nothing."""
        paced_models.runs.clear()
        ticks = itertools.count()
        clock = Clock(wall=lambda: 0.04 * len(paced_models.runs) + 5e-4 * next(ticks), cpu=lambda: 0.0)
        training = TrainOptions(data_dir=people.path, model_dir="", model=f"{MODELS}:counted", batch_size=16)
        found = diagnose(training, Length(seconds=4, rounds=5), str(tmp_path), clock=clock, processes=False)
        assert found.bound_by == "model"
        assert found.share < 0.1
        assert 0.04 <= found.memory.seconds < 0.05
        assert found.alone.seconds < 0.005
        assert list(found.stages) == ["gather"]

    @pytest.mark.slow
    def test_figures_and_what_follows_from_them(self, people, tmp_path, scratch, capsys):
        """Of a split that is not held in memory, though it could be."""
        found = examined(people, tmp_path, "--model", f"{MODELS}:counted", "--shuffle_buffer", "0")
        assert all(found[what]["seconds"] > 0 for what in ("training", "memory", "alone"))
        assert found["share"] == max(0, 1 - found["memory"]["seconds"] / found["training"]["seconds"])
        held = found["tried"][0]
        assert held["setting"] == "no --shuffle_buffer, so that the split is held in memory"
        assert (held["before"], held["sampled"]) == (found["alone"], False)
        told = capsys.readouterr().out
        assert found["verdict"] in told
        assert f"training from the dataset{found['training']['seconds'] * 1e3:>23.2f}" in told
        assert "  with no --shuffle_buffer" in told
        assert "threads of the model, --drop_remainder: not tried, --one_process was given" in told
        assert "  to the device: nothing, training runs on the CPU, which has no idle time of its own" in told
        assert not list(scratch.glob("millrace-*"))

    @pytest.mark.slow
    def test_every_stage_of_the_input_is_measured(self, stripes, tmp_path, scratch):
        """Large crops, colours and sizes changed for each, and a model that does next to nothing."""
        slow = ["--augment", "color_jitter=0.4", "resized_crop=0.5"]
        found = examined(stripes, tmp_path, "--model", f"{MODELS}:trivial", *slow)
        assert list(found["stages"]) == ["read", "shuffle", "parse", "decode and crop", "augment", "batch"]
        assert found["costliest"] == max(found["stages"], key=lambda name: found["stages"][name]["cpu"])
        tried = [t["setting"] for t in found["tried"]]
        assert "--augment color_jitter=0 resized_crop=none" in tried
        assert any("images: {store: raw}" in setting for setting in tried)
        assert not list(scratch.glob("millrace-*"))

    @pytest.mark.slow
    def test_pairs(self, patterns, tmp_path):
        found = examined(patterns, tmp_path, "--model", f"{MODELS}:trivial")
        assert found["training"]["seconds"] > 0
        assert "crop" in found["stages"]


def test_batches_made_ahead_do_not_become_more_from_turn_to_turn(people):
    asked = TrainOptions(data_dir=people.path, model_dir="", deterministic=True)
    how = input_options(people, asked, split="train", mode="train")
    assert measured(people, asked).options == dataclasses.replace(how, prefetch=2)


class TestRefuses:
    @pytest.mark.parametrize(
        ("argv", "code", "message"),
        [
            (["--help"], 0, "hidden_units=256,256,128"),
            ([], 2, "required: --data_dir"),
            (["--data_dir", "d", "--model", "cnn"], 2, "--model cnn: unknown model; choose from linear, dnn"),
            (["--data_dir", __file__, "--json", "-"], 2, f"{__file__}: is a file; expected a dataset directory"),
        ],
    )
    def test_without_a_heavy_import(self, argv, code, message):
        assert_light("trainer.doctor", argv, code=code, message=message)

    @pytest.mark.slow
    def test_a_model_that_fails(self, people, capsys, scratch, monkeypatch):
        """On a terminal, the error has a line of its own below the progress."""
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        model = ["--model", "tests.support.own_models:nan_model_fn"]
        assert doctor.main(["--data_dir", people.path, *BRIEF, *model]) == 1
        err = capsys.readouterr().err
        assert "\nerror: the loss became NaN" in err  # of no model_dir: the doctor keeps none
        assert not list(scratch.glob("millrace-*"))

    def test_a_damaged_shard_without_a_word_of_checkpoints(self, people, tmp_path, capsys):
        folder = tmp_path / "damaged"
        shutil.copytree(people.path, folder)
        damaged = folder / people.manifest.splits["train"].shards[0].path
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
        assert doctor.main(["--data_dir", str(folder), *BRIEF, "--model", "linear"]) == 1
        err = capsys.readouterr().err
        assert f"error: {damaged}: cannot be read after record" in err
        assert "checkpoint" not in err

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
            (12, 7, 10, "input", 5 / 12),  # an input that takes longer than the model cannot hide behind it
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
            "a training step takes 5.00 ms instead of 10.00 ms"
        ]

    def test_what_a_sample_showed_is_compared_with_the_sample(self):
        paid = Tried("b", Cost(0.010, 0.020), Cost(0.005, 0.010), sampled=True)
        found = diagnosis(10, 2, 30, tried=(paid,), changed={"b": Cost(0.005, 0.01)})
        (line,) = found.advice
        assert line == (
            "b: both measured on a sample of the records, the input alone takes 5.00 ms (10.00 ms of CPU) "
            "instead of 10.00 ms (20.00 ms of CPU)"
        )
        (line,) = dataclasses.replace(found, sample=Cost(0.006, 0.01)).advice
        assert line.endswith("; a training step takes 5.00 ms instead of 6.00 ms")
        *_, sample, changed = found.table().splitlines()
        assert sample.split() == ["of", "a", "sample", "of", "the", "records,", "as", "it", "is", "10.00", "20.00"]
        assert changed.split() == ["with", "b", "5.00", "10.00"]

    def test_says_why_there_is_no_advice(self):
        useless = Tried("a", Cost(1, 1), Cost(1, 1))
        assert diagnosis(10, 2, 10).why_none == "there was no other setting to try"
        assert (
            diagnosis(10, 2, 10, tried=(useless,)).why_none == "no setting that was tried makes training clearly faster"
        )
        assert "would take too long" in diagnosis(10, 10, 1, tried=(useless,)).why_none
        bigger = diagnosis(10, 10, 1, bigger=(40, Cost(0.039, 0.039)))
        assert bigger.why_none == "no setting that was tried makes training clearly faster"

    def test_a_bound_model_is_advised_a_batch_that_is_faster(self):
        assert diagnosis(10, 10, 1, bigger=(40, Cost(0.039, 0.039))).advice == []
        (line,) = diagnosis(10, 10, 1, bigger=(40, Cost(0.020, 0.020))).advice
        assert line == "--batch_size 40: 2,000 examples/s instead of 1,000, from memory"

    def test_what_a_process_of_its_own_showed_is_advised_whatever_training_is_bound_by(self):
        before, quicker = Cost(0.010, 0.020), Cost(0.008, 0.012)
        apart = (Tried("--inter_op_threads 1", before, before), Tried("--intra_op_threads 1", before, quicker))
        for found in (diagnosis(10, 9.5, 1, apart=apart), diagnosis(10, 2, 10, apart=apart)):
            assert found.advice == [
                "--intra_op_threads 1: a training step takes 8.00 ms (12.00 ms of CPU) instead of 10.00 ms "
                "(20.00 ms of CPU)"
            ]
            unchanged, *_, changed = found.table().splitlines()[-3:]
            assert unchanged.startswith("training in a process of its own ")
            assert unchanged.split()[-4:] == ["10.00", "20.00", "100.0", "1,000"]
            assert changed.split() == ["with", "--intra_op_threads", "1", "8.00", "12.00", "125.0", "1,250"]

    def test_an_accelerator_is_idle_while_it_does_not_compute(self):
        assert diagnosis(10, 9, 1).idle is None
        copied = diagnosis(10, 9, 1, to_device=Cost(0.001, 0.001), busy=0.0075)
        assert copied.idle == pytest.approx(0.25)
        assert "  the device is idle: 25% of a step" in copied.table().splitlines()
        unknown = diagnosis(10, 9, 1, to_device=Cost(0.001, 0.001))
        assert "  the device is idle: TensorFlow's trace does not tell" in unknown.table().splitlines()

    def test_stages_are_what_each_adds(self):
        prefixes = {"read": Cost(2, 2), "shuffle": Cost(5, 6), "parse": Cost(4, 9), "input alone": Cost(4, 9)}
        assert differences(prefixes) == {"read": Cost(2, 2), "shuffle": Cost(3, 4), "parse": Cost(0, 3)}


class HandClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.clock = Clock(wall=lambda: self.wall, cpu=lambda: self.cpu)

    def pass_by(self, seconds: float, *, cpu: float = 0.0) -> None:
        self.wall += seconds
        self.cpu += cpu


class TestRounds:
    def test_all_have_their_turns_in_each_round(self):
        rounds = Rounds(("a", "b"), Length(seconds=1, rounds=3, steps=6))
        order = list(rounds)
        assert order == ["a"] * 3 + ["b"] * 3 + (["a"] * 8 + ["b"] * 8) * 3  # a third as many steps are not timed
        assert {way: len(costs) for way, costs in rounds.costs.items()} == {"a": 3, "b": 3}

    def test_costs_are_those_of_a_step(self):
        clock = HandClock()
        rounds = Rounds(("slow", "quick"), Length(seconds=0.4, rounds=2), clock=clock.clock)
        for way in rounds:
            clock.pass_by(0.02 if way == "slow" else 0.002, cpu=0.001)
        costs = rounds.medians()
        assert costs["slow"].seconds == pytest.approx(0.02)
        assert costs["quick"].seconds == pytest.approx(0.002)
        assert costs["slow"].cpu == costs["quick"].cpu == pytest.approx(0.001)

    def test_what_was_made_ahead_is_used_up_first(self):
        rounds = Rounds(("a", "b"), Length(seconds=60, rounds=2, steps=6), ahead={"b": 5})
        assert list(rounds) == ["a"] * 3 + ["b"] * 3 + (["a"] * 8 + ["b"] * 11) * 2
        assert not rounds.hurried()

    def test_turns_that_are_too_short_for_that_are_named(self):
        clock = HandClock()
        rounds = Rounds(("a", "b"), Length(seconds=0.2, rounds=2), ahead={"b": 1000}, clock=clock.clock)
        for _ in rounds:
            clock.pass_by(0.002)
        assert rounds.hurried() == {"b"}
        assert not Rounds(("b",), rounds.length, costs={"b": [Cost(1, 1)] * 3}, short=Counter(b=1)).hurried()
        assert "raise --seconds" in dataclasses.replace(diagnosis(10, 2, 10), short=True).caution

    def test_heavy_ways_are_left_out_if_they_take_too_long(self):
        clock = HandClock()
        rounds = Rounds(("a", "b"), Length(seconds=0.2, rounds=2), heavy={"b": 4}, clock=clock.clock)
        for _ in rounds:
            clock.pass_by(0.02)
        assert set(rounds.medians()) == {"a"}
