"""Exported models: their inputs and outputs, and the checks that they see what training saw."""

__all__ = [
    "exporters",
    "outputs",
    "receivers",
    "restore",
    "saved_model",
    "skew_check",
    "warmup",
]
