"""The dataset directory: opens, shows, verifies and prunes it, and defines its manifest and its lease.

The lease lets only one job at a time write to the directory.
"""

from schemas.dataset.opening import OpenDataset, open_dataset, read_checked

__all__ = [
    "OpenDataset",
    "command",
    "holders",
    "layout",
    "leakage",
    "lease",
    "local_cache",
    "manifest",
    "open_dataset",
    "opening",
    "provenance",
    "prune",
    "read_checked",
    "records",
    "show",
    "statistics",
    "verify",
]
