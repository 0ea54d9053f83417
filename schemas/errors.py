"""Errors of two kinds: invalid usage (exit code 2), and failures (exit code 1)."""


class MillraceError(Exception):
    """The command failed. The message names the file, the place, what was found, what was expected, and what to do."""

    exit_code = 1


class SkewError(MillraceError):
    """An exported model differs from the model as it was trained (training/serving skew)."""


class UsageError(MillraceError):
    """Invalid usage (exit code 2); nothing was done."""

    exit_code = 2
