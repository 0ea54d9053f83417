"""Lists rejected images again by their corrected paths or lines. No image is read here."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from beam_jobs.core.source import Chosen
from schemas.images.listing import Listing, list_folders, list_lines
from schemas.rejects import Reject


def list_again(records: Sequence[Chosen], source: str, *, root: str | None) -> tuple[Listing, tuple[Chosen, ...]]:
    """The listing of rejects by their corrected raw bytes (a path, or a line `path,label`), and its records.

    Args:
      records: the rejects.
      source: the listing's name; with a root, the CSV file of the lines, which need not exist.
      root: the folder that the lines' paths are under; None: the bytes are paths.

    Raises:
      UsageError: a path has no folder to be its label, or the root is not a folder.
    """
    listed: list[tuple[Chosen, Listing]] = []
    rejects: list[Reject] = []
    for record in records:
        if root is None:
            one = list_folders([os.fsdecode(record.raw)])
        else:
            one = list_lines([(record.was.offset, record.raw.decode("utf-8", "replace"))], source, root)
        rejects += [still_rejected(record, reject) for reject in one.rejects]
        if one.paths:
            listed.append((record, one))
    listing = Listing(
        paths=tuple(one.paths[0] for _, one in listed),
        names=tuple(one.names[0] for _, one in listed),
        labels=tuple(one.labels[0] for _, one in listed),
        rejects=tuple(rejects),
    )
    return listing, tuple(record for record, _ in listed)


def still_rejected(record: Chosen, reject: Reject) -> Reject:
    """A record that is rejected again: its old place, its corrected bytes, its new reason."""
    return dataclasses.replace(reject, source=record.was.source, offset=record.was.offset, raw=record.raw)
