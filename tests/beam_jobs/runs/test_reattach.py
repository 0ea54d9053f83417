"""A submitted job that is done, and processes that reattach to it to commit it or to throw it away.

It ran once, on Prism. Every test begins with a copy of the output folder as it was then, in the same place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.runs import commit as committing
from beam_jobs.runs import reattach
from schemas import storage
from schemas.dataset import command, layout
from schemas.dataset.lease import LeaseError, hold
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.dataset.prune import prune
from schemas.dataset.verify import verify_dataset
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders
from tests.support.datasets import Submitting, raw_rows, written
from tests.support.people import people_csv
from tests.support.prism import Prism
from tests.support.processes import until

pytestmark = pytest.mark.engines

OTHER = "20200101T000000Z-0000"


@dataclasses.dataclass(frozen=True)
class Scene:
    """A dataset, and a submitted job that is done and would replace it."""

    there: Submitting
    prepared: Path
    old: str
    run: str

    @property
    def output(self) -> str:
        return self.there.output

    def restore(self, copy: Path | None = None) -> None:
        """Puts the output folder back as it was when the job was done, or as in a copy."""
        shutil.rmtree(self.output)
        shutil.copytree(copy or self.prepared, self.output)

    def commit(self) -> Manifest:
        return reattach.commit(self.output, reattach.find(self.output, self.run))

    def check_committed(self) -> None:
        """The dataset is the job's, and nothing is left of it but that and the one before."""
        manifest = read_manifest(self.output)
        assert (manifest.run, manifest.previous, manifest.written) == (self.run, (self.old,), 300)
        assert verify_dataset(self.output) == []

    def check_clean(self) -> None:
        self.check_committed()
        assert sorted(os.listdir(self.output)) == sorted([self.run, self.old, layout.MANIFEST])
        named = {file.path for file in read_manifest(self.output).files}
        named |= {s.path for split in read_manifest(self.output).splits.values() for s in split.shards}
        found = (path for path in Path(self.output, self.run).rglob("*") if path.is_file())
        assert {str(path.relative_to(self.output)) for path in found} == named


@pytest.fixture(scope="module")
def done(prism: Prism, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("taken")
    (folder / "people.csv").write_bytes(raw_rows(folder))
    there = Submitting(folder, str(folder), "PortableRunner", prism.beam_args)
    assert there.locally().code == 0
    old = read_manifest(there.output).run
    submitted = there.preprocess("--no_wait", "--json", "--overwrite")
    assert submitted.code == 0, submitted.err
    until(lambda: there.job("status", "--json").data["state"] != "running", "the job ends")
    assert there.job("status", "--json").data["state"] == "done"
    # Another attempt at a shard, which its worker did not live to report.
    run = submitted.data["run"]
    attempt = layout.join(there.output, run, f"train-00000-{'0' * 32}.tfrecord")
    Path(attempt).write_bytes(b"half a shard")
    prepared = Path(shutil.copytree(there.output, folder / "prepared"))
    return Scene(there, prepared, old, run)


@pytest.fixture
def scene(done: Scene) -> Iterator[Scene]:
    done.restore()
    yield done
    done.restore()


def other_job(output: str) -> Callable[[], None]:
    """Another job, which takes the lease as if nothing waited for a commit, commits and cleans up, in milliseconds."""

    def work() -> None:
        with contextlib.suppress(LeaseError), hold(output, run=OTHER, has_ended=lambda _: True) as held:
            seen = folders.look(layout.join(output, layout.MANIFEST))
            old = read_manifest(output)
            new = old.model_copy(update={"created": "later", "previous": tuple(sorted(old.runs))})
            held.put(layout.MANIFEST, new.to_json(), seen)
            prune(output, held)

    return work


def test_a_result_that_cannot_be_committed_any_more_is_removed_without_force(scene: Scene) -> None:
    submitted = reattach.find(scene.output, scene.run)
    with pytest.raises(UsageError, match="Give --force to throw"):
        reattach.cancel(scene.output, submitted)
    later = read_manifest(scene.output).model_copy(update={"created": "later"})
    storage.write_bytes(layout.join(scene.output, layout.MANIFEST), later.to_json())
    assert "its result" in reattach.cancel(scene.output, submitted)
    assert scene.run not in os.listdir(scene.output)


def test_the_time_until_it_is_committed_is_none_of_the_jobs(scene: Scene) -> None:
    first = scene.commit()
    scene.restore()
    assert scene.commit().seconds == first.seconds > 0


def test_reattaching_commits_and_leaves_nothing_behind(scene: Scene) -> None:
    assert scene.commit().run == scene.run
    scene.check_clean()
    assert scene.commit().run == scene.run  # once more: nothing is done
    scene.check_clean()


def test_a_commit_whose_files_vanish_because_another_one_has_committed_removes_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*given: Any) -> None:
        monkeypatch.undo()
        scene.commit()
        check(*given)

    check = committing.check
    monkeypatch.setattr(committing, "check", overtaken)
    assert scene.commit().run == scene.run
    scene.check_clean()


def test_a_run_that_is_committed_while_somebody_throws_it_away_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*given: Any, **options: Any) -> Any:
        monkeypatch.undo()
        scene.commit()
        return hold(*given, **options)

    monkeypatch.setattr(reattach, "hold", overtaken)
    ended = scene.there.job("cancel", "--force")
    assert ended.code == 1
    assert f"another process has committed run {scene.run}" in ended.err
    scene.check_clean()


def test_the_next_job_is_refused_as_long_as_the_result_waits_for_its_commit(scene: Scene) -> None:
    before = sorted(path for path in Path(scene.output).rglob("*") if path.name != layout.LEASE)
    refused = scene.there.locally("--overwrite")
    assert refused.code == 1
    (line,) = refused.err.splitlines()
    assert line.startswith(f"error: {scene.output}: run {scene.run} (job ")
    for command_line in ("job commit --output {}", "job cancel --output {} --force"):
        assert f"`millrace {command_line.format(scene.output)}`" in line
    assert sorted(path for path in Path(scene.output).rglob("*") if path.name != layout.LEASE) == before
    assert scene.there.is_held_remotely

    thrown_away = scene.there.job("cancel", "--force")
    assert thrown_away.code == 0, thrown_away.err
    assert f"is done; its result, run {scene.run}, was removed" in thrown_away.out
    assert scene.there.locally("--overwrite").code == 0


def test_a_job_that_can_be_committed_is_spared_by_prune_and_one_that_cannot_is_not(scene: Scene) -> None:
    Path(scene.output, layout.LEASE).unlink()
    assert command.main(["prune", scene.output]) == 0
    assert os.path.isdir(layout.join(scene.output, scene.run))
    assert scene.there.job("status", "--json").data["state"] == "done"

    other_job(scene.output)()
    assert not os.path.isdir(layout.join(scene.output, scene.run))


@pytest.mark.parametrize("what", ["status", "commit", "wait", "cancel"])
def test_a_run_that_another_job_has_overtaken_and_removed_is_not_unknown(scene: Scene, what: str) -> None:
    shutil.rmtree(layout.join(scene.output, scene.run))
    Path(scene.output, layout.LEASE).unlink()
    later = "29991231T235959Z-ffff"
    changed = read_manifest(scene.output).model_copy(update={"run": later})
    Path(scene.output, layout.MANIFEST).write_bytes(changed.to_json())
    ended = scene.there.job(what, "--run", scene.run)
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    assert f"another job has committed run {later} since, so run {scene.run} cannot be committed" in line
    unnamed = scene.there.job(what)
    assert unnamed.code == 2
    assert f"the dataset in it is that of run {later}" in unnamed.err


def test_after_another_commit_it_says_so_and_leaves_the_dataset_alone(scene: Scene) -> None:
    old = read_manifest(scene.output)
    changed = old.model_copy(update={"created": "later"})
    Path(scene.output, layout.MANIFEST).write_bytes(changed.to_json())
    ended = scene.there.job("commit", "--run", scene.run)
    assert ended.code == 1
    assert "another job has committed" in ended.err
    assert read_manifest(scene.output) == changed
    assert scene.there.holder() is None


def test_a_result_that_cannot_be_committed_keeps_its_rejects_and_frees_the_output(scene: Scene) -> None:
    path = Path(scene.output, scene.run, layout.JOB)
    submitted = json.loads(path.read_bytes())
    submitted["options"] |= {"max_rejects": 0, "max_reject_fraction": 0.0}
    path.write_text(json.dumps(submitted))
    ended = scene.there.job("commit", "--run", scene.run)
    assert ended.code == 1
    assert "rejected 3 of 303 records" in ended.err
    assert "too_few_columns 3" in ended.err
    rejects = Path(scene.output, layout.FAILED, scene.run, layout.rejects_name(0))
    assert len(rejects.read_text().splitlines()) == 3
    assert sorted(os.listdir(scene.output)) == sorted([scene.old, layout.FAILED, layout.MANIFEST])


def test_a_result_that_has_drifted_is_not_committed_and_frees_the_output(scene: Scene, tmp_path: Path) -> None:
    folder = Path(scene.output, scene.run)
    schema, rows = (folder / layout.SCHEMA_YAML).read_text(), people_csv(300).splitlines()
    (tmp_path / "others.csv").write_text("\n".join([rows[0], *(row for row in rows[1:] if row.endswith("no"))]) + "\n")
    other = written(tmp_path, schema, str(tmp_path / "others.csv"), output=str(tmp_path / "other"))
    (folder / layout.SCHEMA_YAML).write_text(f"{schema}\ndrift: 0.3\n")
    submitted = json.loads((folder / layout.JOB).read_bytes())
    submitted["options"]["compare_to"] = other.path
    (folder / layout.JOB).write_text(json.dumps(submitted))
    before = read_manifest(scene.output)
    ended = scene.there.job("commit", "--run", scene.run)
    assert ended.code == 1
    assert "the data has drifted: the new train against train of" in ended.err
    assert "y drifted by" in ended.err
    assert read_manifest(scene.output) == before
    assert sorted(set(os.listdir(scene.output)) - {layout.FAILED}) == sorted([scene.old, layout.MANIFEST])


def test_a_disk_that_fails_in_the_middle_changes_nothing_and_the_next_attempt_commits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> bool:
        raise MillraceError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folders, "create", fails)
        with pytest.raises(MillraceError, match="No space left"):
            scene.commit()
    assert scene.there.is_held_remotely
    assert scene.commit().run == scene.run
    scene.check_clean()
