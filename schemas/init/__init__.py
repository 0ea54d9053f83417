"""Writes a schema from raw data, with the evidence in comments: `millrace init`.

`form` finds out how files are written, and `survey` reads them once. `columns`, `kinds`, `label`, `leaks` and
`declarations` judge what their columns hold. `tables` tries the schema on the files. `command` is the entry point.
"""

__all__ = ["command"]
