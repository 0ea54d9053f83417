"""The flags of how many records a job may reject."""

from __future__ import annotations

import argparse

from schemas.csv.stream import MAX_INPUT_RATIO


def add_reject_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Adds `--max_rejects`, `--max_reject_fraction` and `--max_input_ratio`, as a group."""
    care = parser.add_argument_group(
        "reject limit", "The job fails, and keeps the rejects, if their number exceeds both limits."
    )
    care.add_argument(
        "--max_rejects", type=int, default=10, metavar="N", help="number of rejects allowed (default: %(default)s)"
    )
    care.add_argument(
        "--max_reject_fraction",
        type=float,
        default=0.001,
        metavar="F",
        help="fraction of all records allowed to be rejects (default: %(default)s)",
    )
    care.add_argument(
        "--max_input_ratio",
        type=float,
        default=MAX_INPUT_RATIO,
        metavar="F",
        help="fail if a gzip'd CSV file decompresses to more than this many times its size (a gzip bomb); "
        "the first 64 MB are exempt (default: %(default)g)",
    )
