"""What decoding the images of a request takes, known from their headers before anything is decoded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from schemas.images.header import BadImage, check_image, decoding_bytes
from schemas.spec.images import ImageSchema


def refuse_images(arrays: Mapping[str, np.ndarray], schema: ImageSchema) -> tuple[dict[int, str], np.ndarray]:
    """Finds the files that the preprocessing job would reject by their headers.

    Args:
      arrays: objects of `bytes` `[rows]` by input.
      schema: of the images.

    Returns:
      Why each of their rows gets no prediction; and for each row the bytes that decoding its images takes, int64
      `[rows]`.
    """
    errors: dict[int, str] = {}
    costs = np.zeros(len(next(iter(arrays.values()))), np.int64)
    for name, files in arrays.items():
        for row, data in enumerate(files.tolist()):
            try:
                if len(data) > schema.images.max_file_bytes:
                    raise BadImage("file_too_large", f"{len(data):,} bytes")
                costs[row] += decoding_bytes(check_image(data, schema.images), schema.images)
            except BadImage as bad:
                errors.setdefault(row, f"{name}: {bad.reason}")
    return errors, costs
