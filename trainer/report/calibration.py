"""Whether a probability means what it says: of the rows that are given 0.8, are eight of ten of the class?"""

from __future__ import annotations

from typing import Any

import numpy as np

BINS = 10


class Calibration:
    """Rows in ten equally wide bins of their probability (scikit-learn's `calibration_curve`, `strategy="uniform"`)."""

    def __init__(self) -> None:
        self._sums = np.zeros((3, BINS))  # weight, weight x probability, weight of the rows that came true

    def add(self, probabilities: np.ndarray, true: np.ndarray, weights: np.ndarray) -> None:
        """Adds rows: `[rows]` each; `true` is bool."""
        bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], probabilities)
        for place, each in enumerate((weights, weights * probabilities, weights * true)):
            self._sums[place] += np.bincount(bins, each, BINS)

    def error(self) -> float | None:
        """The expected calibration error: the mean distance of probability and share over the rows; None: no rows.

        Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015.
        """
        weight, probability, true = self._sums
        return float(np.abs(probability - true).sum() / weight.sum()) if weight.sum() > 0 else None

    def content(self) -> dict[str, Any]:
        """The bins that hold rows, as JSON holds them."""
        used = self._sums[:, self._sums[0] > 0]
        return {
            "expected_calibration_error": self.error(),
            "weight": used[0].tolist(),
            "mean_probability": (used[1] / used[0]).tolist(),
            "share": (used[2] / used[0]).tolist(),
        }
