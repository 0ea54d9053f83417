"""The model directory: checkpoints, the graph that they are restored into, `model.json`, `input.json`, and cleanup."""

__all__ = ["checkpoints", "input_order", "model_json", "session_graph"]
