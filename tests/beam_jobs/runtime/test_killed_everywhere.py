"""`kill -9` before each file operation of a replay's commit and of a prune, and before every third behind a job's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import Dataset, layout
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.dataset.prune import leftovers
from schemas.dataset.verify import verify_dataset
from tests.beam_jobs.conftest import Run
from tests.support.replaying import BROKEN, ROWS, Folder, as_good

pytestmark = pytest.mark.slow

AT_ONCE = 4
CRASHED = "20200101T000000Z-0000"


class Scene:
    """A dataset over an older one and what a killed job left, to be copied; and a command on a copy."""

    def __init__(self, kind: str, path: Path, written: tuple[Folder, Dataset], run_jobs: Run) -> None:
        self.kind, self.path, self.run_jobs = kind, path, run_jobs
        self.raw, dataset = written
        self.corrected = Folder(path).correct(dataset, as_good)
        self.prepared = path / "prepared"
        shutil.copytree(dataset.path, self.prepared)
        (report,) = run_jobs({"argv": self.job(self.prepared)})
        assert report["status"] == 0, report["stderr"]
        left = self.prepared / CRASHED
        (left / "staging").mkdir(parents=True)
        (left / "staging" / "fragment-1").write_bytes(b"x")
        (self.prepared / f".schema.yaml.{'0' * 32}.tmp").write_bytes(b"x")
        self.before = read_manifest(str(self.prepared))
        assert self.before.previous

    def job(self, output: Path) -> list[str]:
        inputs = ["--schema", str(self.raw.path / "schema.yaml"), "--input", str(self.raw.path / "rows.csv")]
        return [*inputs, "--output", str(output), "--overwrite", "--quiet"]

    def command(self, output: Path) -> dict[str, Any]:
        match self.kind:
            case "replay":
                return {"argv": ["--replay", self.corrected, "--append_to", str(output), "--quiet"]}
            case "job":
                return {"argv": self.job(output)}
            case _:
                return {"argv": ["prune", str(output), "--all"], "program": "dataset"}

    def copy(self, name: object) -> Path:
        return shutil.copytree(self.prepared, self.path / f"out{name}")

    def next_one(self, n: int, output: Path) -> dict[str, Any]:
        """The same again, or a prune: what comes next cleans up, whichever it is."""
        again = n % 2 and self.kind != "job"  # which takes seconds, and is what `test_killed` does
        return self.command(output) if again else {"argv": ["prune", str(output)], "program": "dataset"}

    def check_whole(self, output: Path) -> Manifest:
        assert verify_dataset(str(output)) == []
        now = read_manifest(str(output))
        assert now.read == len(ROWS)
        assert now.rejected == (0 if self.kind == "replay" and now.run != self.before.run else len(BROKEN))
        return now

    def check_killed(self, output: Path) -> None:
        """The old dataset or the new one, whole."""
        now = self.check_whole(output)
        if now.run != self.before.run:
            assert self.kind != "prune"
            assert set(now.previous) == self.before.runs

    def check_next(self, output: Path, report: dict[str, Any]) -> None:
        """It succeeded, and nothing is left but what the manifest names; where a replay had nothing to do, a prune."""
        assert report["status"] == 0, report["stderr"]
        if "already replayed" in report["stderr"]:
            (report,) = self.run_jobs(self.next_one(0, output))
            assert report["status"] == 0, report["stderr"]
        now = self.check_whole(output)
        assert leftovers(str(output)) == []
        present = {path.name for path in output.iterdir()}
        assert {layout.MANIFEST} | now.runs <= present <= {layout.MANIFEST, *now.runs, *now.previous}


@pytest.mark.parametrize("kind", ["replay", "job", "prune"])
def test_a_kill_before_any_file_operation_leaves_a_whole_data_set_and_the_next_run_cleans_up(
    kind: str, tmp_path: Path, shared_rejecting: tuple[Folder, Dataset], run_jobs: Run
) -> None:
    scene = Scene(kind, tmp_path, shared_rejecting, run_jobs)
    output = scene.copy("")
    (unhurt,) = run_jobs(scene.command(output))
    scene.check_next(output, unhurt)
    steps = unhurt["steps"]
    first = steps.index("m") if kind == "job" else 0  # what comes before is `test_killed`'s
    # A job takes seconds, and cleans up by the steps that a replay does: of its own every third is taken.
    moments = range(first + 1, len(steps) + 1)[:: 3 if kind == "job" else 1]
    assert len(moments) > 5
    print(f"{kind}: {steps} from step {first + 1} on")
    for at in range(0, len(moments), AT_ONCE):
        some = moments[at : at + AT_ONCE]
        outputs = [scene.copy(n) for n in some]
        for report in run_jobs(*({**scene.command(o), "kill_at": n} for o, n in zip(outputs, some, strict=True))):
            assert report["status"] == -9, report["stderr"]
        for output in outputs:
            scene.check_killed(output)
        following = [scene.next_one(n, output) for n, output in zip(some, outputs, strict=True)]
        for output, report in zip(outputs, run_jobs(*following), strict=True):
            scene.check_next(output, report)
            shutil.rmtree(output)
