"""Starts the command `millrace`, also as `python -m millrace`."""

import os
import sys


def main() -> int:
    """Runs the command. Returns the exit code."""
    by_name = os.path.basename(sys.argv[0]) != "__main__.py"
    try:
        from millrace import cli

        return cli.main(prog="millrace" if by_name else "python -m millrace")
    except KeyboardInterrupt:  # before the command's own work, which says what became of it
        print("error: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
