"""Writes the report of a run beside its shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from beam_jobs.output import drift
from beam_jobs.output.shown_files import shown_files
from beam_jobs.output.shown_images import shown_images
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.rejects import Reject, read_rejects
from schemas.report import data_report
from schemas.report.leakage import files_of
from schemas.storage import folders
from schemas.storage.json_files import read_if_there


def place_report(output: str, manifest: Manifest, *, phases: Sequence[tuple[str, float]] = ()) -> None:
    """Writes `report.html`, unless another process has: from the manifest, and from the files that the run has by now.

    Args:
      output: the dataset's folder; in that of the run are its shards, statistics and rejects.
      manifest: complete, but for the run's files.
      phases: the job's phases and their seconds, if they are known.
    """
    run_dir = layout.join(output, manifest.run)
    names = set(storage.listdir(run_dir))
    statistics, leakage = (
        read_if_there(layout.join(run_dir, name), "what the job found")
        for name in (layout.STATISTICS_JSON, layout.LEAKAGE)
    )
    page = data_report.render(
        manifest,
        statistics=statistics,
        rejects=_rejects(run_dir, names),
        phases=phases,
        images=shown_images(output, manifest) if manifest.classes else {},
        leakage=leakage,
        pictures=shown_files(files_of(leakage)) if leakage else {},
        comparisons=drift.read(run_dir),
    )
    folders.create(layout.join(run_dir, layout.REPORT), page.encode())


def _rejects(run_dir: str, names: set[str]) -> Iterator[Reject]:
    for name in sorted(name for name in names if layout.REJECTS.fullmatch(name)):
        yield from read_rejects(storage.read_bytes(layout.join(run_dir, name)))
