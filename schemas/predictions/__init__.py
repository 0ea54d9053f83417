"""Predictions as files: their columns, their text as JSON and CSV, and the manifest of a folder of them.

`encoding.predictions` makes columns of a model's outputs; `encode_json_lines` and `encode_csv` write them.
"""

__all__ = ["encoding", "manifest"]
