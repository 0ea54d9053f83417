"""The model directory: checkpoints, `model.json`, `input.json`, and the explanation and cleanup of failures."""

__all__ = ["checkpoints", "input_order", "model_json"]
