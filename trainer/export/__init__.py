"""Exported models: their inputs and outputs, and the checks that they see what training saw."""

__all__ = [
    "compare",
    "exporters",
    "graph_values",
    "outputs",
    "parity_records",
    "receivers",
    "restore",
    "saved_model",
    "skew_check",
    "verified",
    "warmup",
]
