"""What bounds the memory of workers on a runner that keeps its shuffle in memory: it carries places and no records."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import beam_job_api_pb2 as api
from apache_beam.runners.portability.job_server import ExternalJobServer

from schemas.samples.tables import sample_blocks
from tests.support.datasets import Folder
from tests.support.prism import Prism

pytestmark = pytest.mark.engines

GROUP_BY_KEY = "beam:transform:group_by_key:v1"
ELEMENT_BYTES = 4096  # places, ranges of files and partial statistics are smaller


def largest_grouped(prism: Prism) -> dict[str, int]:
    """By the name of each GroupByKey of Prism's last job, the bytes of the largest element that it was given."""
    service = ExternalJobServer(prism.job_endpoint, 60).start()
    last = max(service.GetJobs(api.GetJobsRequest(), timeout=60).job_info, key=lambda info: info.job_id).job_id
    pipeline = service.GetPipeline(api.GetJobPipelineRequest(job_id=last), timeout=60).pipeline
    metrics = service.GetJobMetrics(api.GetJobMetricsRequest(job_id=last), timeout=60).metrics
    largest = {
        info.labels["PCOLLECTION"]: monitoring_infos.extract_distribution(info)[3]
        for info in metrics.committed
        if info.urn == monitoring_infos.SAMPLED_BYTE_SIZE_URN
    }
    groupings = [t for t in pipeline.components.transforms.values() if t.spec.urn == GROUP_BY_KEY]
    return {t.unique_name: largest[i] for t in groupings for i in t.inputs.values() if i in largest}


def test_prism_groups_places_of_records_and_no_records(prism: Prism, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"".join(sample_blocks("covertype", rows=20_000, seed=1)))
    there = {"runner": "PortableRunner", "beam_args": prism.beam_args, "range_mb": 0.5}
    dataset = Folder(tmp_path).run(schema="covertype", input=(str(tmp_path / "rows.csv"),), **there)
    assert sum(map(dataset.rows, dataset.splits)) == 20_000
    grouped = largest_grouped(prism)
    assert "ShuffleIntoShards/ByShard" in grouped
    assert max(grouped.values()) < ELEMENT_BYTES, grouped
