"""A schema from raw data: `millrace init` writes one, with the evidence in comments, or checks one against new data.

`command` is the entry point. What columns hold comes from `schemas.profile.raw_columns`.
"""

__all__ = ["command"]
