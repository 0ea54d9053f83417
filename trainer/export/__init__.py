"""From a checkpoint to a checked export.

`exporters` are what a training calls: they write an export with the inputs of `receivers`, the outputs of `outputs`
and the verdicts of `row_errors`, compare it with the Estimator on real records (`skew_check`), add requests to
warm a server up (`warmup`), and give it a number only then. `outputs` rebuilds the Estimator of a model directory for
the same check later.
"""

__all__ = [
    "exporters",
    "outputs",
    "receivers",
    "skew_check",
    "warmup",
]
