"""Which pairs, and which images, may become parity records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from beam_jobs.core import parity_files, parity_sample
from schemas.images.pairs import Pair


def ranks_of(pairs: Sequence[Pair]) -> tuple[dict[int, int], dict[int, int]]:
    """The pairs that may become parity records, each with its rank; and their images, each with its best pair's."""
    ranks = parity_sample.place_hash(0, np.arange(len(pairs))).tolist()
    most = parity_files.RECORDS * 2**64 // max(len(pairs), 1)
    of_pairs = {number: rank for number, rank in enumerate(ranks) if rank <= most}
    of_images: dict[int, int] = {}
    for number, rank in of_pairs.items():
        for place in (pairs[number].a, pairs[number].b):
            of_images[place] = min(rank, of_images.get(place, rank))
    return of_pairs, of_images
