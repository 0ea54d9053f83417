"""A disk that has no room for what a job writes: the job fails, says where, and commits nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.samples.tables import write_sample

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LIMITED = """
import resource, runpy, sys
room = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
runpy.run_module("beam_jobs.preprocess", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    write_sample("covertype", str(path), rows=12_000, seed=1)
    return path


@pytest.mark.parametrize(
    ("room", "refused"),
    [
        (100_000, "fragment-"),
        (1_000_000, "shard-"),  # each batch has room, and the one shard of them all has not
    ],
)
def test_the_job_names_the_file_and_commits_nothing(rows, tmp_path, room, refused):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(room), "--schema", "schemas/covertype.yaml", "--input", str(rows)]
        + ["--output", str(tmp_path / "out"), "--num_shards", "1", "--range_mb", "0.5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert refused in last
    assert last.endswith("File too large. Free some space, or use another disk.")
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path / "out") == []
