"""Opens a dataset as its readers do: exit status 0 it opened, 1 refused with a message."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Opens, and loads the graphs' checksums as a trainer would."""
    from schemas.dataset import open_dataset
    from schemas.errors import MillraceError

    try:
        _ = open_dataset(argv[0]).graphs_dir
    except MillraceError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    return 0
