"""How two sets of records differ, feature by feature: `compare` takes samples, and returns a `Comparison`.

Samples are the statistics of jobs, or of files as they are (`schemas.profile.statistics`).
"""

__all__ = [
    "Comparison",
    "FeatureDrift",
    "Sample",
    "as_meant",
    "compare",
    "of_groups",
    "render",
    "samples_of",
    "stored_samples",
]

from schemas.comparison.compare import Sample, as_meant, compare, of_groups, samples_of, stored_samples
from schemas.comparison.findings import Comparison, FeatureDrift, render
