"""What goes wrong, in two kinds: what was asked wrongly (exit 2), and what failed (exit 1)."""


class MillraceError(Exception):
    """The work failed. The message names the file, the place, what was found, what was expected, what to do."""

    exit_code = 1


class SkewError(MillraceError):
    """What is served differs from what was trained on."""


class UsageError(MillraceError):
    """The work was asked wrongly; nothing was done."""

    exit_code = 2
