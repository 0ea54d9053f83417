"""Every bundle fails once, after its work, on a runner that retries: each record is written once, and counted once.

`tests/beam_jobs/runs/test_retried.py` has bundles that are run twice on this machine's runner, and replays.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_jobs.core.accounting import TooManyRejects
from schemas.dataset import Dataset
from schemas.dataset.prune import foreign
from tests.support import failing_bundles
from tests.support.engine_inputs import KINDS
from tests.support.people import MEASURED_SCHEMA, make_job, people_csv
from tests.support.replaying import accounts_hold, contents, rejects_of

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", ["covertype", "images", "pairs"])
def test_records_come_once_where_each_bundle_fails_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    inputs = KINDS[kind](tmp_path / "in")
    once = inputs.written(f"{tmp_path}/in", f"{tmp_path}/once", runner="FnApiRunner")
    retried = inputs.written(f"{tmp_path}/in", f"{tmp_path}/retried", runner=failing_bundles.NAME)
    accounts_hold(retried)
    assert contents(retried) == contents(once)
    assert retried.manifest.counts == once.manifest.counts
    assert sorted(r.to_json() for r in rejects_of(retried)) == sorted(r.to_json() for r in rejects_of(once))
    assert {path.partition("/")[2] for path in names(retried)} == {path.partition("/")[2] for path in names(once)}
    assert foreign(retried.path) == []
    reading, writing = ("Ingest", "WriteShards") if kind != "covertype" else ("ReadAll", "WriteShards")
    for step in (reading, writing, "WriteResult"):
        assert any(step in name for name in failing_bundles.failed), failing_bundles.failed


def names(dataset: Dataset) -> list[str]:
    """The files that the manifest names beside the shards."""
    return [file.path for file in dataset.manifest.files]


def test_a_failed_job_counts_and_keeps_its_rejects_once(tmp_path: Path) -> None:
    job = make_job(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(300) + "too,few\n" * 20)
    with pytest.raises(TooManyRejects, match="20 of 320 records") as raised:
        job.run(runner=failing_bundles.NAME, range_mb=0.01)
    assert "rejected: too_few_columns 20" in str(raised.value)
    (kept,) = (job.output / "failed").glob("*/rejects-*.jsonl")
    assert len(kept.read_text().splitlines()) == 20
