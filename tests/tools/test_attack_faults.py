"""The attack finds what is lost, doubled, changed or made up in what a real job wrote."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path

import pytest

from tools.attack import damage, kill, read_back
from tools.attack.children import Answer, Ask, Children
from tools.attack.fuzz_csv import Inputs
from tools.attack.ground import Ground, ground, job_arguments
from tools.attack.oracle_dataset import check_dataset
from tools.attack.tally import Tally


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with Children(tmp_path_factory.mktemp("tmp")) as running:
        yield running


@pytest.fixture(scope="module")
def whole(children, tmp_path_factory) -> Ground:
    """A dataset of every kind of feature, with four rejects."""
    return ground("csv", children, tmp_path_factory.mktemp("ground"))


@pytest.fixture(scope="module")
def account(whole):
    """What the oracle is given: expected records, the manifest, stored records, rejects."""
    assert whole.plan is not None
    path = Path(whole.inputs[0])
    inputs = Inputs(whole.plan, whole.schema, (path,), (order_of(path),), (path.read_bytes(),))
    told = read_back.manifest(whole.data)
    lines = read_back.rejects(list((whole.data / told["run"]).glob("rejects-*.jsonl")))
    return inputs.expected(), told, list(read_back.stored(whole.data, told)), list(lines)


def order_of(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text().split("\n", 1)[0].split(","))


@pytest.mark.slow
class TestKnownFaults:
    """One thing is changed in what a real job wrote, and the oracle has to say so."""

    def titles(self, whole, account, **changed) -> set[str]:
        names = ("expected", "told", "stored", "rejected")
        given = {**dict(zip(names, account, strict=True)), **changed}
        return set(check_dataset(whole.plan, *(given[name] for name in names)).counts)

    def test_what_the_job_wrote_is_as_expected(self, whole, account):
        assert self.titles(whole, account) == set()

    def test_a_record_that_was_dropped(self, whole, account):
        found = self.titles(whole, account, stored=account[2][1:])
        assert found == {"a record is lost", "the shards hold another number of records"}

    def test_a_record_that_was_doubled(self, whole, account):
        found = self.titles(whole, account, stored=[*account[2], account[2][0]])
        assert found == {"a record is doubled or lost", "the shards hold another number of records"}

    @pytest.mark.parametrize(
        ("feature", "value"),
        [
            ("n_none", [12345.0]),
            ("n_z", [9.9]),
            ("n_log", [float("-inf")]),
            ("n_minmax_missing", [1.0]),
            ("n_given", [3]),
            ("c_values", [7]),
            ("b", [0.5]),
            ("o", [3]),
            ("t", [0, 0, 0]),
            ("w", [3.0]),
            ("y", [-1]),
            ("id", [b"another"]),
        ],
    )
    def test_a_record_that_was_altered(self, whole, account, feature, value):
        first, *others = account[2]
        altered = dataclasses.replace(first, values={**first.values, feature: value})
        assert self.titles(whole, account, stored=[altered, *others])

    def test_a_reject_that_was_forgotten_moved_or_changed(self, whole, account):
        first, *others = account[3]
        assert self.titles(whole, account, rejected=others)
        for change in ({"offset": first.offset + 1}, {"raw": first.raw + b"x"}, {"reason": "not_a_number"}):
            assert self.titles(whole, account, rejected=[dataclasses.replace(first, **change), *others])

    def test_a_bad_record_that_was_written(self, whole, account):
        expected = [
            dataclasses.replace(e, may_write=False, may_reject=True) if e.values.get("id") == b"k0000007" else e
            for e in account[0]
        ]
        assert self.titles(whole, account, expected=expected)


@pytest.mark.slow
class TestDamages:
    @pytest.mark.parametrize("what", sorted({d.__name__ for d in damage.DAMAGES}))
    def test_each_of_them_changes_the_dataset(self, whole, tmp_path, what):
        for seed in range(6):
            data = tmp_path / str(seed) / "data"
            shutil.copytree(whole.data, data)
            done = getattr(damage, what)(random.Random(seed), data, read_back.manifest(data))
            assert done.what
            assert state(data) != state(whole.data)

    def test_what_verify_passes_over_is_a_fault(self, whole, children, tmp_path, monkeypatch):
        monkeypatch.setattr(damage, "DAMAGES", (lambda draw, data, told: damage.Done("nothing", refused=True),))
        monkeypatch.setattr(random.Random, "choice", lambda self, items: items[0])
        monkeypatch.setattr(damage, "ground", lambda *_: whole)
        monkeypatch.setattr(damage, "DAMAGES_A_ROUND", 1)
        tally = Tally(tmp_path / "faults")
        (tmp_path / "round").mkdir()
        damage.round_(random.Random(1), children, tmp_path / "round", tally, seed="x")
        assert tally.faults.total() == 2


def state(folder: Path) -> dict[str, object]:
    """Every file and link below a folder."""
    paths = [folder, *folder.rglob("*")]
    return {
        str(p.relative_to(folder)): p.readlink() if p.is_symlink() else p.is_file() and p.read_bytes() for p in paths
    }


class TestKills:
    @pytest.mark.slow
    def test_a_child_dies_at_the_given_operation(self, whole, children, tmp_path):
        argv = job_arguments(whole.schema, whole.inputs, tmp_path / "out")
        unhurt, killed = children.run(
            Ask("beam_jobs.preprocess", argv, watched=str(tmp_path / "out")),
            Ask(
                "beam_jobs.preprocess",
                job_arguments(whole.schema, whole.inputs, tmp_path / "other"),
                watched=str(tmp_path / "other"),
                struck_at=3,
            ),
        )
        assert (unhurt.status, killed.status) == (0, -9)
        assert unhurt.steps > 10
        assert killed.steps == 2
        assert kill.phase(None, None, tmp_path / "other", killed) in (
            "at work",
            "committing",
            "before or after the lease",
        )

    def test_every_scene_is_played_once_in_as_many_rounds_as_there_are_scenes(self):
        rounds = [
            [kill.scene(f"7:kill:{turn * len(kill.SCENES) + i}") for i in range(len(kill.SCENES))] for turn in range(9)
        ]
        assert all(set(scenes) == set(kill.SCENES) for scenes in rounds)
        assert len({tuple(scenes) for scenes in rounds}) > 1
        assert kill.stop_jobs in {play for play, _ in kill.SCENES}

    @pytest.mark.parametrize("name", ["staging", ".x.jsonl.12ab.partial", "temp-170", "checkpoint.tmp12", "lease.json"])
    def test_what_counts_as_left_over(self, name):
        assert kill.LEFT.search(name)
        assert not kill.LEFT.search("predictions.jsonl")

    @pytest.mark.parametrize(
        ("status", "output", "crashed"),
        [(0, "", False), (1, "error: x", False), (1, "Traceback (most recent call last):", True), (-11, "", True)],
    )
    def test_what_counts_as_a_crash(self, status, output, crashed):
        assert Answer(status, 1.0, output, 0).crashed == crashed
