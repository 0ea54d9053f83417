"""Before a job begins, it says which vocabularies would be very large."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from beam_jobs.core.options import JobOptions
from beam_jobs.rows import vocabulary_advice as advice
from beam_jobs.rows.vocabulary_advice import about, estimate
from beam_jobs.runs.job import check_inputs

SCHEMA = """\
name: visits
format: csv
csv: {header: present}
features:
  - {name: user, kind: category%s}
  - {name: city, kind: category}
  - {name: page, kind: category, hash_buckets: 1000}
label: {name: y, kind: category, values: ["no", "yes"]}
split: {by: row, train: 0.8, eval: 0.1, test: 0.1}
"""


class TestEstimate:
    @pytest.mark.parametrize("distinct", [10, 1000, 100_000, 1_000_000])
    def test_lies_between_its_bounds_for_equally_frequent_values(self, distinct):
        """A million rows, of which 20,000 are sampled at random."""
        rng = np.random.default_rng(distinct)
        drawn = rng.integers(0, distinct, 20_000) if distinct < 1_000_000 else rng.permutation(1_000_000)[:20_000]
        found = estimate(pa.array([b"%d" % i for i in drawn]), 0.02)
        assert found.low / 8 <= distinct <= max(found.high, distinct * 1.0001)
        assert distinct <= found.high * 1.01
        assert found.sampled == 20_000

    def test_a_whole_column_is_counted_exactly(self):
        found = estimate(pa.array([b"a", b"b", b"b"]), 1.0)
        assert (found.low, found.high, found.distinct) == (2, 2, 2)


@pytest.mark.parametrize(("count", "text"), [(1, "1"), (99, "99"), (2_236_067, "2,200,000"), (1e8, "100,000,000")])
def test_counts_are_said_in_two_digits(count, text):
    assert about(count) == text


class TestAdvice:
    @pytest.fixture(autouse=True)
    def _many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if 3,000 distinct values were a million."""
        monkeypatch.setattr(advice, "MANY", 3_000)
        monkeypatch.setattr(advice, "PIECE", 4_000)

    def notes(self, folder: Path, limits: str = "", *, zipped: bool = False) -> list[str]:
        (folder / "schema.yaml").write_text(SCHEMA % limits)
        rows = [f"user {i},city {i % 50},page {i},{['no', 'yes'][i % 2]}" for i in range(20_000)]
        data = "\n".join(["user,city,page,y", *rows]).encode()
        (folder / "raw.csv").write_bytes(gzip.compress(data) if zipped else data)
        found: list[str] = []
        options = JobOptions(str(folder / "schema.yaml"), (str(folder / "raw.csv"),), str(folder / "out"))
        check_inputs(options, found.extend)
        return found

    @pytest.mark.parametrize("zipped", [False, True])
    def test_names_the_column_and_what_to_do(self, tmp_path, zipped):
        (note,) = self.notes(tmp_path, zipped=zipped)
        assert note.startswith("user: ")
        assert "distinct values are expected" in note
        assert "consider `top_k`, `frequency_threshold` or `hash_buckets`" in note

    @pytest.mark.parametrize("limits", [", top_k: 100", ", frequency_threshold: 2", ", hash_buckets: 10"])
    def test_is_silent_where_the_schema_sets_a_limit(self, tmp_path, limits):
        assert self.notes(tmp_path, limits) == []

    def test_is_silent_about_small_inputs_without_reading_them(self, tmp_path, monkeypatch):
        monkeypatch.setattr(advice, "MANY", 1_000_000)
        monkeypatch.delattr(advice, "sample_rows")
        assert self.notes(tmp_path) == []
