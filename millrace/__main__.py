"""Starts the command `millrace`, or `python -m millrace`."""

import os
import sys


def main() -> int:
    """Runs the command. Returns its exit code."""
    by_name = os.path.basename(sys.argv[0]) != "__main__.py"
    try:
        from millrace import cli

        return cli.main(prog="millrace" if by_name else "python -m millrace")
    except KeyboardInterrupt:  # while modules are imported; the command itself handles later signals
        print("error: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
