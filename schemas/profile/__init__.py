"""Collects what columns hold, batch by batch, in values of bounded size that merge.

`summary` describes one column of some records. `statistics` has a summary of each column in each split. `leakage`
collects hashes and a sample, from which `leakage_findings` tells what splits share and what predicts the label.
`profiles` collects both from the same rows. All need Arrow and NumPy alone; `beam_jobs.profiles` merges them in Beam.
"""

__all__ = [
    "columns",
    "duplicates",
    "label_leaks",
    "leakage",
    "leakage_findings",
    "near_duplicates",
    "profiles",
    "raw_columns",
    "relations",
    "roc",
    "sketches",
    "spellings",
    "statistics",
    "summary",
]
