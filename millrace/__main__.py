"""`python -m millrace`."""

import sys

from millrace.cli import main

if __name__ == "__main__":
    sys.exit(main(prog="python -m millrace"))
