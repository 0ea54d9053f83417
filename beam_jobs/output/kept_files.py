"""The files of a dataset that hold what its analyses have measured, by run: `analysis/RUN.arrow` and its words."""

from __future__ import annotations

from beam_jobs.core.keeping import STAGED, Keeping, Kept
from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.dataset.manifest import Manifest
from schemas.storage import folders
from schemas.storage.json_files import parse_json


def place_kept(run_dir: str, staging: str, run: str) -> bool:
    """Gives what the run's analysis has kept its final names. Returns whether there is any."""
    keeping = Keeping(run, layout.join(staging, STAGED), "")
    if not storage.exists(keeping.entries):
        return False
    entries, words = _names(run)
    if storage.exists(keeping.words):
        for number, name in enumerate(parse_json(storage.read_bytes(keeping.words))):
            data = storage.read_bytes(layout.join(keeping.folder, name))
            folders.create(layout.join(run_dir, f"{words}{number:05d}.arrow"), data)
    folders.create(layout.join(run_dir, entries), storage.read_bytes(keeping.entries))
    return True


def kept_of(base: Dataset) -> tuple[Kept, ...]:
    """What the dataset has kept of each of its analyses."""
    return tuple(_kept(base, run) for run in base.manifest.analyzed)


def is_complete(manifest: Manifest) -> bool:
    """Whether what was kept is of all records that were read."""
    return bool(manifest.analyzed) and sum(manifest.analyzed.values()) == manifest.read


def _kept(base: Dataset, run: str) -> Kept:
    entries, words = (layout.join(base.run, name) for name in _names(run))
    named = sorted(file.path for file in base.manifest.files if file.path.startswith(words))
    return Kept(run, layout.join(base.path, entries), tuple(layout.join(base.path, name) for name in named))


def _names(run: str) -> tuple[str, str]:
    return layout.join(layout.ANALYSIS, f"{run}.arrow"), layout.join(layout.ANALYSIS, f"{run}-words-")
