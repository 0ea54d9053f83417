"""How two sets of records differ, feature by feature: from the statistics of their jobs, or of files as they are."""

__all__ = ["Comparison", "FeatureDrift", "Sample", "as_meant", "compare", "render", "samples", "stored"]

from schemas.comparison.compare import compare
from schemas.comparison.findings import Comparison, FeatureDrift
from schemas.comparison.meanings import as_meant
from schemas.comparison.samples import Sample, samples
