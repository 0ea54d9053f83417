"""What lies in a model directory, and what is left there by a training that failed."""

__all__ = ["checkpoint_saver", "checkpoints", "cleanup", "failures", "model_json"]
