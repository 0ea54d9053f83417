"""Compares two sets of records, feature by feature, by their statistics: `compare` takes two samples.

A sample is a split of a dataset, or raw files, as `schemas.profile.statistics` describes them.
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
