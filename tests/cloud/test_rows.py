"""CSV rows in a bucket: the same dataset as on local disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.append.run import run_append
from beam_jobs.core.options import AppendOptions, JobOptions, ReplayOptions
from beam_jobs.replay.run import run_replay
from beam_jobs.runtime.job import run_job
from schemas import storage
from schemas.dataset import Dataset, command, open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.errors import UsageError
from schemas.storage import folders
from tests.support import appending, replaying
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.written_records import records


def preprocess(schema: Path, raw: str, output: str, **changes) -> Dataset:
    options = {"num_shards": 3, "quiet": True, "max_reject_fraction": 1.0, **changes}
    run_job(JobOptions(schema=str(schema), input=(raw,), output=output, **options))
    return open_dataset(output)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.yaml"
    path.write_text(LEAN_SCHEMA)
    return path


def test_a_job_from_bucket_to_bucket_writes_the_records_of_one_on_local_disk(tmp_path, bucket, schema) -> None:
    for number, text in enumerate((people_csv(500), people_csv(300) + "too,few\n" * 3)):
        (tmp_path / f"people-{number}.csv").write_text(text)
        folders.upload(str(tmp_path / f"people-{number}.csv"), f"{bucket}/raw/people-{number}.csv")
    here = preprocess(schema, str(tmp_path / "people-*.csv"), str(tmp_path / "out"))
    there = preprocess(schema, f"{bucket}/raw/people-*.csv", f"{bucket}/out")
    assert there.splits == here.splits
    for split in here.splits:
        assert records(there, split) == records(here, split)
        # Which shard a record is in depends on its file's path, which is another one here.
        assert len(there.shards(split)) == len(here.shards(split))
    assert (there.manifest.read, there.manifest.rejected) == (803, 3)
    assert verify_dataset(there.path) == []
    names = {name.partition("/")[0] for name in folders.walk(there.path)}
    assert names == {"manifest.json", there.run}
    assert not [name for name in storage.listdir(there.run_dir) if name.startswith(("staging", "shard", "fragment"))]


def test_show_verify_and_prune_work_on_a_dataset_in_a_bucket(bucket, schema, capsys) -> None:
    storage.write_bytes(f"{bucket}/people.csv", people_csv(200).encode())
    runs = [preprocess(schema, f"{bucket}/people.csv", f"{bucket}/out", overwrite=True).run for _ in range(3)]
    capsys.readouterr()
    assert command.main(["show", f"{bucket}/out"]) == 0
    assert runs[-1] in capsys.readouterr().out
    assert command.main(["verify", f"{bucket}/out"]) == 0
    assert storage.listdir(f"{bucket}/out") == [*sorted(runs[1:]), "manifest.json"]
    storage.write_bytes(f"{bucket}/out/20200101T000000Z-abcd/staging/left", b"over")
    assert command.main(["prune", f"{bucket}/out"]) == 0
    assert storage.listdir(f"{bucket}/out") == [*sorted(runs[1:]), "manifest.json"]
    assert command.main(["prune", f"{bucket}/out", "--all"]) == 0
    assert storage.listdir(f"{bucket}/out") == [runs[-1], "manifest.json"]
    assert command.main(["verify", f"{bucket}/out"]) == 0


def test_corrected_rejects_in_a_bucket_make_the_dataset_that_good_rows_make(bucket, tmp_path) -> None:
    (tmp_path / "schema.yaml").write_text(replaying.SCHEMA)
    for name, rows in (("bad", replaying.BAD), ("good", replaying.ROWS)):
        storage.write_bytes(f"{bucket}/{name}.csv", "\n".join([replaying.HEADER, *rows, ""]).encode())
    bad = preprocess(tmp_path / "schema.yaml", f"{bucket}/bad.csv", f"{bucket}/out", num_shards=None)
    rejects = replaying.rejects_of(bad)
    assert len(rejects) == len(replaying.BROKEN)
    corrected = [{**json.loads(reject.to_json()), "raw": replaying.as_good(reject)} for reject in rejects]
    lines = "".join(json.dumps({k: v for k, v in row.items() if k != "raw_base64"}) + "\n" for row in corrected)
    storage.write_bytes(f"{bucket}/corrected.jsonl", lines.encode())
    outcome = run_replay(ReplayOptions((f"{bucket}/corrected.jsonl",), f"{bucket}/out", quiet=True))
    assert outcome.added == len(rejects)
    after = open_dataset(f"{bucket}/out")
    replaying.accounts_hold(after)
    good = preprocess(
        tmp_path / "schema.yaml",
        f"{bucket}/good.csv",
        f"{bucket}/good",
        num_shards=None,
        transform_from=f"{bucket}/out",
    )
    assert replaying.contents(after) == replaying.contents(good)


def test_a_dataset_in_a_bucket_grows_and_is_measured_anew(bucket, tmp_path) -> None:
    """Each row is there once; what is known by its content is refused; known runs are not analyzed again."""
    days = appending.Days(tmp_path)
    for day in range(3):
        storage.write_bytes(f"{bucket}/day{day}.csv", Path(days.day(day)).read_bytes())
    storage.write_bytes(f"{bucket}/copy.csv", Path(days.day(0)).read_bytes())
    preprocess(Path(days.schema), f"{bucket}/day0.csv", f"{bucket}/out", num_shards=None, keep_analysis=True)

    def append(*names: str, **changes: Any) -> list[str]:
        notes: list[str] = []
        inputs = tuple(f"{bucket}/{name}.csv" for name in names)
        run_append(AppendOptions(f"{bucket}/out", inputs, quiet=True, **changes), report=notes.extend)
        return notes

    append("day1")
    with pytest.raises(UsageError, match=r"copy\.csv \(as .*day0\.csv\)"):
        append("copy", "day2")
    assert "as measured" in "".join(append("copy", "day2", skip_known=True, reanalyze=True))
    dataset = open_dataset(f"{bucket}/out")
    assert verify_dataset(dataset.path) == []
    held = sorted(i for some in appending.ids(dataset).values() for i in some)
    assert held == appending.raw_ids(*(days.day(day) for day in range(3)))
    assert len(dataset.manifest.analyzed) == 3
