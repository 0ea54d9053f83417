"""The attack finds what is lost, doubled, changed or made up in what a real job wrote."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path

import pytest

from tools.attack import damage, kill, oracle_dataset
from tools.attack.fuzz_csv import Inputs
from tools.attack.ground import JOB, Answer, Ask, Children, Ground, ground, job_arguments
from tools.attack.oracle_dataset import check_dataset
from tools.attack.rounds import Found


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
    inputs = Inputs(whole.plan, whole.schema, ((path, tuple(path.read_text().split("\n", 1)[0].split(","))),))
    told = oracle_dataset.manifest(whole.data)
    rejects = oracle_dataset.rejects(*oracle_dataset.reject_files(whole.data))
    return inputs.expected(), told, list(oracle_dataset.stored(whole.data, told)), list(rejects)


@pytest.mark.slow
class TestKnownFaults:
    """One thing is changed in what a real job wrote, and the oracle has to say so."""

    def titles(self, whole, account, **changed) -> set[str]:
        names, found = ("expected", "told", "stored", "rejected"), Found()
        given = {**dict(zip(names, account, strict=True)), **changed}
        check_dataset(whole.plan, given["expected"], given["told"], given["stored"], given["rejected"], found)
        return set(found.counts)

    def test_what_the_job_wrote_is_as_expected(self, whole, account):
        assert self.titles(whole, account) == set()

    def test_a_record_that_was_dropped_or_doubled(self, whole, account):
        number = "the shards hold another number of records"
        assert self.titles(whole, account, stored=account[2][1:]) == {"a record is lost", number}
        doubled = [*account[2], account[2][0]]
        assert self.titles(whole, account, stored=doubled) == {"a record is doubled or lost", number}

    @pytest.mark.parametrize(
        ("feature", "value"),
        [
            *(("n_none", [12345.0]), ("n_z", [9.9]), ("n_log", [float("-inf")]), ("n_minmax_missing", [1.0])),
            *(("n_given", [3]), ("c_values", [7]), ("b", [0.5]), ("o", [3]), ("t", [0, 0, 0]), ("w", [3.0])),
            *(("y", [-1]), ("id", [b"another"])),
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
@pytest.mark.parametrize("what", sorted({d.__name__ for d in damage.DAMAGES}))
def test_each_damage_changes_the_dataset(whole, tmp_path, what):
    def state(folder: Path) -> dict[str, object]:
        paths = {str(p.relative_to(folder)): p for p in [folder, *folder.rglob("*")]}
        return {n: p.readlink() if p.is_symlink() else p.is_file() and p.read_bytes() for n, p in paths.items()}

    for seed in range(3):
        data = tmp_path / str(seed) / "data"
        shutil.copytree(whole.data, data)
        assert getattr(damage, what)(random.Random(seed), data, oracle_dataset.manifest(data)).what
        assert state(data) != state(whole.data)


@pytest.mark.slow
def test_a_child_dies_at_the_given_operation(whole, children, tmp_path):
    outs = [tmp_path / "out", tmp_path / "other"]
    asks = [
        Ask(JOB, job_arguments(whole.schema, whole.inputs, out), watched=str(out), kill_at=at)
        for out, at in zip(outs, (None, 3), strict=True)
    ]
    unhurt, killed = children.run(*asks)
    assert (unhurt.status, killed.status) == (0, -9)
    assert unhurt.steps > 10
    assert killed.steps == 2


def test_every_scene_is_played_once_in_as_many_rounds_as_there_are_scenes():
    count = len(kill.SCENES)
    rounds = [[kill.scene_of(f"7:kill:{turn * count + i}") for i in range(count)] for turn in range(9)]
    assert all(set(scenes) == set(kill.SCENES) for scenes in rounds)
    assert len({tuple(scenes) for scenes in rounds}) > 1


@pytest.mark.parametrize(
    ("status", "output", "crashed"),
    [(0, "", False), (1, "error: x", False), (1, "Traceback (most recent call last):", True), (-11, "", True)],
)
def test_what_counts_as_a_crash(status, output, crashed):
    assert Answer(status, 1.0, output, 0).crashed == crashed
