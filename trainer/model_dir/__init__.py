"""The model directory: checkpoints, `model.json`, and the explanation and cleanup of failures."""

__all__ = ["checkpoint_saver", "checkpoints", "cleanup", "failures", "model_json"]
