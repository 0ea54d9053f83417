"""CSV files as a source: what is to be read, and the steps of the pipeline that read it."""

__all__ = ["pipeline", "read", "source"]
