"""The model directory: checkpoints, `model.json`, `input.json`, and the explanation and cleanup of failures."""

__all__ = ["checkpoint_saver", "checkpoints", "cleanup", "evaluations_json", "failures", "input_order", "model_json"]
