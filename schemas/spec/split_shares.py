"""Whether splits have the shares of the rows that a schema gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from schemas.errors import few
from schemas.spec.table import SPLITS, HashSplit, Schema

LEAST_DIFFERENCE, LEAST_DEVIATIONS = 0.05, 5.0  # of a share; and of the chance of rows that are drawn one by one


def uneven_splits(schema: Schema, rows: Mapping[str, int]) -> str | None:
    """What is to be said of splits whose sizes differ from the schema's shares by more than chance.

    Rows of equal values, or of one group, are in one split: where these are few, the shares cannot be kept.

    Args:
      schema: of the rows.
      rows: how many rows each split has.
    """
    split, total = schema.split, sum(rows.values())
    if not isinstance(split, HashSplit) or not total:
        return None
    shares = {name: share for name in SPLITS if (share := getattr(split, name))}
    differences = {name: abs(rows.get(name, 0) / total - share) for name, share in shares.items()}
    if not any(
        difference > max(LEAST_DIFFERENCE, LEAST_DEVIATIONS * math.sqrt(shares[name] * (1 - shares[name]) / total))
        for name, difference in differences.items()
    ):
        return None
    sizes = ", ".join(f"{name} {rows.get(name, 0):,} for {share * total:,.0f}" for name, share in shares.items())
    if split.by == "row":
        cause = (
            "rows of equal values are in one split, and few rows are distinct. To divide equal rows, number the rows "
            "in a column of the file, and divide by it: split: {by: [number]}"
        )
    else:
        cause = (
            f"rows that have the same {few(split.by)} are in one split, and these are few, or some have many rows. "
            "Divide by other columns, or by: row"
        )
    return f"the splits are uneven (rows, and what the schema's shares would give: {sizes}), since {cause}"
