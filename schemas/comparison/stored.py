"""The samples of a dataset, from the files of its run."""

from __future__ import annotations

from schemas import storage
from schemas.comparison.samples import Sample, samples
from schemas.dataset import layout
from schemas.dataset.manifest import Manifest
from schemas.errors import UsageError


def stored_samples(data_dir: str, manifest: Manifest) -> dict[str, Sample]:
    """What a dataset's run says of each of its splits.

    Raises:
      UsageError: it was written without statistics.
      MillraceError: they cannot be read.
    """
    name = layout.join(manifest.run, layout.STATISTICS_SKETCHES)
    path = layout.join(data_dir, name)
    if name not in {file.path for file in manifest.files}:
        raise UsageError(
            f"{data_dir}: has no statistics to compare. It was written with --no_statistics, or by an earlier release; "
            "write it again to have them."
        )
    return samples(storage.read_bytes(path), source=path)
