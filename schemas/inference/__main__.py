"""`python -m schemas.inference`."""

import sys

from schemas.inference.command import main

if __name__ == "__main__":
    sys.exit(main())
