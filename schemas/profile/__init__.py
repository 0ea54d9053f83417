"""What columns hold: profiles that take records batch by batch, and merge.

`summary` is one column of some records. `statistics` has one for each column and split, `leakage` what splits share and
what predicts the label; each has `add` and `merge`, and becomes JSON values by `statistics` and
`leakage_findings`. `profiles` collects both, of rows.
`raw_columns` profiles columns before there is a schema. Arrow and NumPy: Beam calls it from `beam_jobs.profiles`.
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
