"""The dataset directory: open, show, verify and prune it; its manifest, and the lease that one job at a time holds."""

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
