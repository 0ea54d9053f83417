"""A schema from raw data: `millrace init` writes one, with the evidence in comments.

Files are read once (`form`, `survey`), what their columns hold is judged by rules (`columns`, `kinds`, `label`,
`declarations`), and the schema is written and tried (`tables`). `command` is the entry point.
"""

__all__ = ["command"]
