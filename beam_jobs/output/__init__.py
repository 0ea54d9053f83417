"""What a pipeline has written and counted, the dataset that it is added to, and what is said of the data."""

__all__ = [
    "accounts",
    "data_report",
    "data_warnings",
    "drift",
    "existing",
    "leakage",
    "pipeline_end",
    "result",
]
