"""What is kept of an analysis: where, and under which name."""

from __future__ import annotations

import dataclasses

from beam_jobs.core.inputs import StagedInputs
from schemas.dataset import layout

STAGED = "kept"  # the folder in a run's staging folder where it is written


@dataclasses.dataclass(frozen=True)
class Kept:
    """The files that hold what was measured of one run: `run` is the name that tf.Transform's keys go by."""

    run: str
    entries: str
    words: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What an analysis keeps, and what it takes as measured.

    Attributes:
      run: the run whose records it reads.
      folder: where it writes what it measures of them.
      fingerprint: of the schema.
      known: what earlier runs have kept, whose records it does not read.
    """

    run: str
    folder: str
    fingerprint: str
    known: tuple[Kept, ...] = ()

    @property
    def entries(self) -> str:
        return layout.join(self.folder, "entries.arrow")

    @property
    def words(self) -> str:
        """The file that names the files of words, written when all of these are there."""
        return layout.join(self.folder, "words.json")


@dataclasses.dataclass(frozen=True)
class Analysis:
    """An analysis whose measurements are kept.

    Attributes:
      keeping: where.
      inputs: what is read for it, without the inputs of runs whose measurements are known.
    """

    keeping: Keeping
    inputs: StagedInputs


class Outdated(Exception):
    """What was kept cannot be used: made by other versions, or without a part that this analysis needs."""
