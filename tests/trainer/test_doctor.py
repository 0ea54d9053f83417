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
import tensorflow as tf

from schemas.dataset import Dataset
from tests.support import own_models
from tests.support.commands import assert_light
from trainer.data import input_options
from trainer.data.input_options import InputOptions
from trainer.doctor import command as doctor
from trainer.doctor.command import diagnose
from trainer.doctor.diagnosis import Clock, Cost, Diagnosis, Length, Rounds, Tried, Whole, differences
from trainer.doctor.measure import busy_seconds, full_trace
from trainer.doctor.stages import WHOLE, prefixes, settings
from trainer.doctor.whole import settings_to_try
from trainer.loop.plan import plan_training
from trainer.spec.hparams import Augmentation
from trainer.spec.options import StepOptions, TrainOptions

pytestmark = pytest.mark.long

MODELS = "tests.support.own_models"
SHORT = ["--seconds", "1", "--rounds", "2", "--batch_size", "16"]
BRIEF = [*SHORT, "--only_steps"]


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
        own_models.runs.clear()
        ticks = itertools.count()
        clock = Clock(wall=lambda: 0.04 * len(own_models.runs) + 5e-4 * next(ticks), cpu=lambda: 0.0)
        training = TrainOptions(data_dir=people.path, model_dir="", model=f"{MODELS}:counted", batch_size=16)
        found = diagnose(training, Length(seconds=4, rounds=5), str(tmp_path), clock=clock)
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
        told = capsys.readouterr().out
        assert found["verdict"] in told
        assert f"training from the dataset{found['training']['seconds'] * 1e3:>23.2f}" in told
        assert found["settings"]["read"][0] == "no --shuffle_buffer, so that the split is held in memory"
        assert "  to the device: nothing, training runs on the CPU, which has no idle time of its own" in told
        assert not list(scratch.glob("millrace-*"))

    @pytest.mark.slow
    def test_every_stage_of_the_input_is_measured(self, stripes, tmp_path, scratch, monkeypatch):
        """Large crops, colours and sizes changed for each, and a model that does next to nothing."""
        monkeypatch.setattr(input_options, "IMAGE_CACHE_BYTES", 0)  # as of a split that is too large to be held
        slow = ["--augment", "color_jitter=0.4", "resized_crop=0.5"]
        found = examined(stripes, tmp_path, "--model", f"{MODELS}:trivial", *slow)
        assert list(found["stages"]) == ["read", "shuffle", "parse", "decode and crop", "augment", "batch"]
        assert found["costliest"] == max(found["stages"], key=lambda name: found["stages"][name]["cpu"])
        assert found["settings"]["augment"] == ["--augment color_jitter=0 resized_crop=none"]
        assert found["settings"]["decode and crop"] == ["images: {store: raw}, in the schema"]
        assert not list(scratch.glob("millrace-*"))

    @pytest.mark.slow
    def test_the_whole_training_and_threads_worth_a_try(self, wages, tmp_path, scratch, capsys):
        """Of a model that ships; there is time for the threads as they are, and for no others."""
        figures = tmp_path / "figures.json"
        argv = ["--data_dir", wages.path, *SHORT, "--model", "linear", "--json", str(figures)]
        assert doctor.main(argv) == 0
        found, told = json.loads(figures.read_text()), capsys.readouterr().out
        plan = plan_training(wages, TrainOptions(data_dir=wages.path, model_dir="", model="linear", batch_size=16))
        whole = found["whole"]
        assert (whole["told"], whole["steps"]) == (plan.chosen, plan.max_steps)
        assert whole["evaluations"] == 12
        assert min(whole[name] for name in ("start", "step", "evaluation", "exports", "report")) > 0
        assert whole["rate"] == pytest.approx(whole["steps"] / whole["seconds"])
        assert whole["rate"] < 1 / found["training"]["seconds"]
        assert plan.chosen in told
        assert list(found["threads"]["seconds"]) == [""]
        assert "--read_threads 2" in found["threads"]["left"]
        assert f"  no time was left for {', '.join(found['threads']['left'])}; give more --seconds" in told
        assert not list(scratch.glob("millrace-*"))

    @pytest.mark.slow
    def test_a_model_that_cannot_be_evaluated_has_no_whole(self, people, tmp_path, scratch):
        argv = [
            "--data_dir",
            people.path,
            *SHORT,
            "--model",
            f"{MODELS}:only_trained",
            "--json",
            str(tmp_path / "f.json"),
        ]
        assert doctor.main(argv) == 0
        assert json.loads((tmp_path / "f.json").read_text())["whole"] is None


class TestRefuses:
    @pytest.mark.parametrize(
        ("argv", "code", "message"),
        [
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

    def test_advises_the_settings_of_the_costliest_stage_first(self):
        stages = {"read": Cost(0.001, 0.001), "augment": Cost(0.005, 0.009)}
        slow = dataclasses.replace(
            diagnosis(10, 2, 10), stages=stages, settings={"read": ("a", "b"), "augment": ("c",)}
        )
        assert slow.advice == ["c: makes augment cheaper", "a: makes read cheaper", "b: makes read cheaper"]
        assert slow.as_text().endswith("\n  b: makes read cheaper")
        assert diagnosis(10, 10, 1).advice == [
            "--batch_size 40: a step costs less for each example, as far as memory allows"
        ]
        assert diagnosis(10, 2, 10).as_text().endswith("\n  no setting is known to make training faster")

    def test_an_accelerator_is_idle_while_it_does_not_compute(self):
        assert diagnosis(10, 9, 1).idle is None
        copied = diagnosis(10, 9, 1, to_device=Cost(0.001, 0.001), busy=0.0075)
        assert copied.idle == pytest.approx(0.25)
        assert "  the device is idle: 25% of a step" in copied.as_text().splitlines()
        unknown = diagnosis(10, 9, 1, to_device=Cost(0.001, 0.001))
        assert "  the device is idle: TensorFlow's trace does not tell" in unknown.as_text().splitlines()

    def test_stages_are_what_each_adds(self):
        prefixes = {"read": Cost(2, 2), "shuffle": Cost(5, 6), "parse": Cost(4, 9), "input alone": Cost(4, 9)}
        assert differences(prefixes) == {"read": Cost(2, 2), "shuffle": Cost(3, 4), "parse": Cost(0, 3)}


WHOLE_TRAINING = Whole(
    told="dnn, 1,000 steps",
    steps=1000,
    evaluations=10,
    start=5.0,
    step=0.01,
    checkpoint=0.1,
    evaluation=1.4,
    exports=6.0,
    report=4.0,
)


class TestWhole:
    def test_is_the_sum_of_its_parts(self):
        assert list(WHOLE_TRAINING.parts.values()) == pytest.approx([5.0, 10.0, 1.0, 14.0, 6.0, 4.0])
        told = dataclasses.replace(diagnosis(10, 10, 1), whole=WHOLE_TRAINING).as_text().splitlines()
        assert told[-2:] == ["In all 40 s at most: 25.0 steps/s, where steps alone make 100.0.", "  dnn, 1,000 steps"]
        assert [line.split()[-2:] for line in told if "evaluations" in line] == [["14.0", "35%"]]

    def test_threads_are_worth_a_try_from_a_tenth(self):
        tried = Tried({"": 0.010, "--a 1": 0.008, "--b 1": 0.0095, "--c 2": 0.006}, ("--d 1",), ("--e 1",))
        assert tried.better == pytest.approx({"--c 2": 0.4, "--a 1": 0.2})
        assert tried.lines()[-3:] == [
            "  no time was left for --d 1; give more --seconds",
            "  failed: --e 1",
            "Threads worth a try: --c 2 (40% of a step less), --a 1 (20% of a step less).",
        ]
        assert Tried({"": 0.01, "--a 1": 0.0095}).lines()[-1].startswith("None of these")
        assert Tried({}).better == {}

    @pytest.mark.parametrize(
        ("given", "cores", "tried"),
        [
            ({}, 2, ["inter_op_threads 1 intra_op_threads 1", "read_threads 2", "read_threads 1"]),
            ({}, 8, ["inter_op_threads 1 intra_op_threads 1", "inter_op_threads 2 intra_op_threads 2",
                     "read_threads 2", "read_threads 1"]),
            ({"read_threads": 4}, 1, ["inter_op_threads 2 intra_op_threads 2"]),
            ({"inter_op_threads": 4}, 2, ["read_threads 2", "read_threads 1"]),
        ],
    )  # fmt: skip
    def test_one_and_two_threads_are_tried_where_none_are_given(self, monkeypatch, given, cores, tried):
        monkeypatch.setattr("trainer.doctor.whole.usable_cores", lambda: cores)
        found = settings_to_try(StepOptions(data_dir="d", **given))
        assert [" ".join(f"{name} {n}" for name, n in setting.items()) for setting in found] == tried


class HandClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.clock = Clock(wall=lambda: self.wall, cpu=lambda: self.cpu)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds


class TestRounds:
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


@pytest.mark.parametrize(
    ("name", "options", "stages"),
    [
        ("wages", {}, ["gather"]),
        ("wages", {"cache_bytes": 0}, ["read", "parse", "shuffle"]),
        ("people", {"cache_bytes": 0}, ["read", "shuffle", "parse"]),  # sparse: what is shuffled is not parsed yet
        ("wages", {"shuffle_buffer": 0}, ["read", "parse"]),
        ("patterns", {}, ["crop"]),
        ("patterns", {"cache_bytes": 0}, ["read", "shuffle", "parse", "crop", "augment", "batch"]),
    ],
)
def test_stages_follow_one_another(request, name, options, stages):
    found = prefixes(request.getfixturevalue(name), InputOptions(batch_size=16, **options))
    assert list(found) == [*stages, WHOLE]
    for batches in found.values():
        assert len(list(itertools.islice(batches, 70))) == 70  # they go on for ever


def test_settings_that_make_a_stage_cheaper(people, stripes):
    """Each is said where it is not as it could be."""
    plain = InputOptions(batch_size=16, cache_bytes=0, num_epochs=1)
    shards = "--num_shards 8, of millrace preprocess"
    assert settings(people, InputOptions(batch_size=16)) == {}
    assert settings(people, InputOptions(batch_size=16, deterministic=True)) == {"gather": ("no --deterministic",)}
    assert settings(stripes, InputOptions(batch_size=16, deterministic=True)) == {"crop": ("no --deterministic",)}
    assert settings(people, plain) == {"read": (shards,)}
    zipped = dataclasses.replace(people, manifest=people.manifest.model_copy(update={"compression": "gzip"}))
    unheld = dataclasses.replace(plain, shuffle_buffer=0, deterministic=True, cache_bytes=1 << 30)
    assert settings(zipped, unheld)["read"] == (
        "no --shuffle_buffer, so that the split is held in memory",
        "--compression none, of millrace preprocess",
        shards,
        "no --deterministic",
    )
    costly = dataclasses.replace(plain, shuffle_buffer=400, augmentation=Augmentation(color_jitter=0.4))
    assert settings(stripes, costly) == {
        "read": (shards,),
        "shuffle": ("--shuffle_buffer 40",),
        "decode and crop": ("images: {store: raw}, in the schema",),
        "augment": ("--augment color_jitter=0 resized_crop=none",),
    }


# No GPU was there to trace. Its traces are written by hand, with the names that TensorFlow's `xplane_to_step_stats.cc`
# gives to a GPU's streams and copies.
HOST = "/job:localhost/replica:0/task:0/device:"


def trace(**nodes: list[tuple[int, int]]) -> tf.compat.v1.RunMetadata:
    """Of each device when operations ran, in microseconds."""
    stats = tf.compat.v1.RunMetadata().step_stats
    for device, times in nodes.items():
        added = stats.dev_stats.add(device=HOST + device.replace("__", "/").replace("_", ":"))
        for begin, end in times:
            added.node_stats.add(all_start_micros=1000, op_start_rel_micros=begin, op_end_rel_micros=end)
    return stats


def test_kernels_that_overlap_count_once_and_copies_do_not() -> None:
    kernels = [(0, 100), (50, 150), (60, 70), (400, 500)]
    first = trace(GPU_0=[(0, 900)], GPU_0__stream_all=kernels, GPU_0__memcpy=[(200, 300)], GPU_1__stream_all=[(0, 9)])
    assert busy_seconds([first], "/device:GPU:0") == pytest.approx(250e-6)
    assert busy_seconds([first, trace(GPU_0__stream_all=[(0, 50)])], "/device:GPU:0") == pytest.approx(150e-6)


def test_a_trace_without_kernels_tells_nothing() -> None:
    assert busy_seconds([trace(GPU_0=[(0, 900)])], "/device:GPU:0") is None


def test_tensorflow_traces_a_step() -> None:
    """On the CPU, whose operations are told under its own name."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        product = tf.linalg.matmul(tf.random.normal([200, 200]), tf.random.normal([200, 200]))
        metadata = tf.compat.v1.RunMetadata()
        session.run(product, options=full_trace(), run_metadata=metadata)
    busy = busy_seconds([metadata.step_stats], "/device:CPU:0")
    assert busy is not None
    assert busy > 0
