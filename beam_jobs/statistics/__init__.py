"""Statistics of the accepted records, by split and feature: collected in the passes that a job makes anyway."""

__all__ = ["collect", "columns", "combine", "files", "state"]
