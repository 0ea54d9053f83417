"""Collects what images leave behind: digests of their files, and their looks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_jobs.leakage.extremes import Extremes, Sized
from beam_jobs.leakage.looks import Look
from beam_jobs.leakage.state import Known
from beam_jobs.leakage.traces import HASH, IMAGES, SPLIT, Traces


@dataclasses.dataclass(frozen=True)
class Seen:
    """An image as it was ingested: its path, a digest of its file, the file's sides in pixels, and its look."""

    path: str
    digest: int
    height: int
    width: int
    look: Look


class ImageCollector:
    """Collects what the accepted images of a bundle leave.

    Attributes:
      known: None if there was no image.
    """

    def __init__(self) -> None:
        self.known: Known | None = None

    def add(self, images: Sequence[Seen], splits: np.ndarray, labels: pa.Array) -> None:
        """Adds images, with the split (an index into SPLITS) and the label (binary) of each."""
        if self.known is None:
            self.known = Known({"images": Traces(IMAGES)}, extremes=Extremes())
        columns = {
            HASH: np.array([image.digest for image in images], np.uint64),
            SPLIT: splits.astype(np.int8),
            "across": np.array([image.look.across for image in images], np.uint64),
            "down": np.array([image.look.down for image in images], np.uint64),
            "clear": pa.array([image.look.clear for image in images], pa.bool_()),
            "label": labels,
            "path": pa.array([image.path.encode("utf-8", "surrogateescape") for image in images], pa.binary()),
        }
        self.known.traces["images"].add(columns)
        if self.known.extremes is not None:
            sized = [Sized(each.height * each.width, each.path, each.height, each.width) for each in images]
            self.known.extremes.add(sized)
