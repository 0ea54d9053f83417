"""How two sets of records differ, feature by feature: from the statistics of their jobs, or of files as they are."""

__all__ = ["Comparison", "FeatureDrift", "Sample", "as_meant", "compare", "render", "samples", "stored_samples"]

from schemas.comparison.compare import as_meant, compare
from schemas.comparison.findings import Comparison, FeatureDrift, render
from schemas.comparison.samples import Sample, samples, stored_samples
