"""CSV rows in a bucket of every store: the same dataset as on local disk, and what changes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.core.options import AppendOptions
from beam_jobs.runs.append import run_append
from schemas import storage
from schemas.dataset import OpenDataset, command, open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.errors import UsageError
from schemas.storage import folders
from tests.support import datasets
from tests.support.datasets import assert_same
from tests.support.people import LEAN_SCHEMA, people_csv


def preprocess(folder: Path, raw: str, output: str, schema: str = LEAN_SCHEMA, **changes: Any) -> OpenDataset:
    return datasets.written(folder, schema, raw, output=output, **{"max_reject_fraction": 1.0, **changes})


def test_a_job_from_bucket_to_bucket_writes_the_records_of_one_on_local_disk(tmp_path: Path, bucket: str) -> None:
    for number, text in enumerate((people_csv(500), people_csv(300) + "too,few\n" * 3)):
        (tmp_path / f"people-{number}.csv").write_text(text)
        folders.upload(str(tmp_path / f"people-{number}.csv"), f"{bucket}/raw/people-{number}.csv")
    here = preprocess(tmp_path, str(tmp_path / "people-*.csv"), str(tmp_path / "out"), num_shards=3)
    there = preprocess(tmp_path, f"{bucket}/raw/people-*.csv", f"{bucket}/out", num_shards=3)
    assert_same(there, here)
    # Which shard a record is in depends on its file's path, which is another one here.
    assert [len(there.shards(split)) for split in here.splits] == [len(here.shards(split)) for split in here.splits]
    assert (there.manifest.read, there.manifest.rejected) == (803, 3)
    assert {name.partition("/")[0] for name in folders.walk(there.path)} == {"manifest.json", there.run}
    assert not [name for name in storage.listdir(there.run_dir) if name.startswith(("staging", "shard", "fragment"))]


def test_show_verify_and_prune_work_on_a_dataset_in_a_bucket(tmp_path: Path, bucket: str, capsys) -> None:
    storage.write_bytes(f"{bucket}/people.csv", people_csv(200).encode())
    raw, out = f"{bucket}/people.csv", f"{bucket}/out"
    runs = [preprocess(tmp_path, raw, out, overwrite=True).run for _ in range(3)]
    capsys.readouterr()
    assert command.main(["show", out]) == 0
    assert runs[-1] in capsys.readouterr().out
    assert storage.listdir(out) == [*sorted(runs[1:]), "manifest.json"]
    storage.write_bytes(f"{out}/20200101T000000Z-abcd/staging/left", b"over")
    assert command.main(["prune", out]) == 0
    assert storage.listdir(out) == [*sorted(runs[1:]), "manifest.json"]
    assert command.main(["prune", out, "--all"]) == 0
    assert storage.listdir(out) == [runs[-1], "manifest.json"]
    assert command.main(["verify", out]) == 0


def test_corrected_rejects_in_a_bucket_make_the_dataset_that_good_rows_make(tmp_path: Path, bucket: str) -> None:
    for name, rows in (("bad", datasets.BAD), ("good", datasets.FEW_ROWS)):
        storage.write_bytes(f"{bucket}/{name}.csv", "\n".join([datasets.FEW_HEADER, *rows, ""]).encode())
    rejects = datasets.rejects_of(preprocess(tmp_path, f"{bucket}/bad.csv", f"{bucket}/out", datasets.FEW))
    corrected = [{**json.loads(reject.to_json()), "raw": datasets.as_good(reject)} for reject in rejects]
    lines = "".join(json.dumps({k: v for k, v in row.items() if k != "raw_base64"}) + "\n" for row in corrected)
    storage.write_bytes(f"{bucket}/corrected.jsonl", lines.encode())
    outcome = run_append(AppendOptions(f"{bucket}/out", replay=(f"{bucket}/corrected.jsonl",), quiet=True))
    assert outcome.added == len(rejects) == len(datasets.BROKEN)
    after = open_dataset(f"{bucket}/out")
    datasets.accounts_hold(after)
    shared = {"transform_from": f"{bucket}/out"}
    good = preprocess(tmp_path, f"{bucket}/good.csv", f"{bucket}/good", datasets.FEW, **shared)
    contents = [datasets.contents(dataset) for name, dataset in (("a", after), ("b", good))]
    assert contents[0] == contents[1]


def test_a_dataset_in_a_bucket_grows(tmp_path: Path, bucket: str) -> None:
    """Each row is there once; what is known by its content is refused, or left out."""
    days = datasets.Folder(tmp_path)
    for name, day in (("day0", 0), ("day1", 1), ("day2", 2), ("copy", 0)):
        storage.write_bytes(f"{bucket}/{name}.csv", Path(days.day(day)).read_bytes())
    preprocess(tmp_path, f"{bucket}/day0.csv", f"{bucket}/out", datasets.DAYS)

    def append(*names: str, **changes: Any) -> None:
        inputs = tuple(f"{bucket}/{name}.csv" for name in names)
        run_append(AppendOptions(f"{bucket}/out", inputs, quiet=True, **changes))

    append("day1")
    with pytest.raises(UsageError, match=r"copy\.csv \(as .*day0\.csv\)"):
        append("copy", "day2")
    append("copy", "day2", skip_known=True)
    dataset = open_dataset(f"{bucket}/out")
    assert verify_dataset(dataset.path) == []
    row_ids = sorted(i for split_ids in datasets.ids(dataset).values() for i in split_ids)
    assert row_ids == datasets.raw_ids(*(days.day(day) for day in range(3)))
