"""What a job of very many files costs before it runs: the size of its pipeline, which a cluster's service limits."""

from __future__ import annotations

import pytest

from benchmarks import scale_plan


@pytest.mark.slow
def test_a_pipeline_of_a_hundred_thousand_files_is_as_small_as_one_of_a_hundred(capfd: pytest.CaptureFixture[str]):
    assert scale_plan.main(["--kinds", "csv", "--files", "100", "100000", "--terabytes", "1"]) == 0
    few, many = (line.split() for line in capfd.readouterr().out.splitlines()[1:])
    sizes = [int(line[2].replace(",", "")) for line in (few, many)]
    assert sizes[1] < 1_000_000
    assert sizes[1] - sizes[0] < 5_000
