"""Which version this is."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """The installed version; '0+unknown' in a checkout that is not installed."""
    from schemas.source_distribution import NAME

    try:
        return importlib.metadata.version(NAME)
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
