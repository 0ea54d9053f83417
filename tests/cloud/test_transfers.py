"""How a bucket is read and written: conditions on what commits, bounded memory, connections and requests at once."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.images.reader import REMOTE_READERS
from beam_jobs.records import shards
from beam_jobs.runs.job import run_job
from schemas import storage
from schemas.concurrency import in_threads
from schemas.dataset import command, open_dataset
from schemas.storage import folders, gcs, paths
from schemas.storage.gcs import UPLOAD_BYTES
from tests.support.gateway_settings import Fault
from tests.support.people import LEAN_SCHEMA, people_csv
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

SHARDS = 12


@pytest.fixture
def options(bucket: str, tmp_path: Path) -> JobOptions:
    (tmp_path / "schema.yaml").write_text(LEAN_SCHEMA)
    storage.write_bytes(f"{bucket}/raw.csv", people_csv(600).encode())
    return JobOptions(
        f"{tmp_path}/schema.yaml",
        (f"{bucket}/raw.csv",),
        f"{bucket}/out",
        num_shards=SHARDS,
        quiet=True,
        overwrite=True,
    )


def test_every_put_and_removal_of_manifest_and_lease_names_the_generation_that_it_replaces(cloud, options) -> None:
    run_job(options)
    run_job(options)
    assert command.main(["prune", options.output, "--all"]) == 0
    changes = [request for request in cloud.requests if not request.startswith("GET")]
    # The last step of a job removes its lease, and the launcher makes sure of it; prune removes its own.
    for name, puts, removals in (("manifest.json", 2, 0), ("lease.json", 3, 5)):
        of_it = [request for request in changes if request.endswith(name) or f"{name}?" in request]
        assert all("ifGenerationMatch=" in request for request in of_it)
        assert len([request for request in of_it if request.startswith("POST")]) >= puts
        assert len([request for request in of_it if request.startswith("DELETE")]) == removals


def test_a_local_job_shuffles_on_local_disk_and_uploads_nothing_but_files_of_the_run(cloud, options) -> None:
    cloud.inject()
    run_job(options)
    uploaded = [request.rpartition(" ")[2] for request in cloud.requests if request.startswith("POST /upload")]
    shards = [name for name in uploaded if "/shard-" in name]
    assert len(shards) >= SHARDS
    assert not [name for name in uploaded if "fragment" in name or "decoded" in name]


def test_a_large_file_is_uploaded_in_parts_of_bounded_memory(cloud, bucket, tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(2 * UPLOAD_BYTES + 1)
    (tmp_path / "large").write_bytes(data)
    cloud.inject()
    folders.upload(str(tmp_path / "large"), f"{bucket}/a")
    assert cloud.traffic.largest_body == UPLOAD_BYTES
    assert storage.read_bytes(f"{bucket}/a") == data


def test_there_is_a_connection_for_each_thread_and_it_is_used_again(cloud, bucket, caplog) -> None:
    threads = max(REMOTE_READERS, gcs.TRANSFERS + shards.UPLOADS + paths.REMOTE_FILES + 1)
    assert REMOTE_READERS + gcs.TRANSFERS + shards.UPLOADS + paths.REMOTE_FILES < gcs.CONNECTIONS
    storage.write_bytes(f"{bucket}/a", b"a")
    cloud.inject(Fault("alt=media", times=threads, wait=0.3))  # all at once
    with caplog.at_level(logging.WARNING, logger="urllib3"):
        contents = in_threads(lambda _: storage.read_bytes(f"{bucket}/a"), range(4 * threads), threads=threads)
    assert contents == [b"a"] * 4 * threads
    assert cloud.traffic.connections <= threads + 1  # the other one is the test's own
    assert "Connection pool is full" not in caplog.text


def test_a_commit_moves_and_lists_several_files_at_once_and_no_more_than_said(cloud, options) -> None:
    cloud.inject(Fault("rewriteTo", times=10**9, wait=1.0))
    run_job(options)
    assert 4 < cloud.traffic.at_once <= paths.REMOTE_FILES + 1
    assert len(open_dataset(options.output).manifest.splits["train"].shards) == SHARDS


def test_training_waits_for_the_answers_of_all_open_shards_at_once(cloud, options) -> None:
    run_job(options)
    dataset = open_dataset(options.output)
    reading = InputOptions(batch_size=32, num_epochs=2, cache_bytes=0, seed=1)
    assert dataset.graphs_dir
    cloud.inject(Fault("GET /bucket.*/train-|GET /bucket.*%2Ftrain-", times=10**9, wait=2.0))
    batches = input_fn(dataset, "train", mode=tf_estimator.ModeKeys.TRAIN, options=reading)
    rows = sum(int(labels.shape[0]) for _, labels in batches)
    assert rows == 2 * dataset.rows("train")
    assert cloud.traffic.at_once >= reading.cycle_length
    requests = [request for request in cloud.requests if "train-" in request]
    assert len(requests) == 2 * SHARDS  # one request for each shard and epoch


def test_a_training_from_the_cache_asks_for_each_shard_once(cloud, options, tmp_path: Path) -> None:
    from schemas.dataset.local_cache import LocalCache

    run_job(options)
    cloud.inject()
    for _ in range(2):
        cache = LocalCache(str(tmp_path / "cache"))
        dataset = cache.hold(open_dataset(options.output), ("train",)).dataset
        reading = dataclasses.replace(InputOptions(cache_bytes=0), num_epochs=2)
        batches = input_fn(dataset, "train", mode=tf_estimator.ModeKeys.TRAIN, options=reading)
        assert sum(int(labels.shape[0]) for _, labels in batches) == 2 * dataset.rows("train")
        cache.close()
    assert len([request for request in cloud.requests if "train-" in request and "alt=media" in request]) == SHARDS
