"""Schema files as text, with the part that a test is about."""

from __future__ import annotations

FEATURE = "- {name: x, kind: numeric}"


def text(*features: str, label: str = "{name: y, kind: category}", more: str = "") -> str:
    """A schema file: features from line 4 on, then the label, then `more`."""
    lines = [
        "name: d",
        "format: csv",
        "features:",
        *(f"  {f}" for f in features or (FEATURE,)),
        f"label: {label}",
        more,
    ]
    return "\n".join(lines)
