"""`python -m schemas.dataset`."""

import sys

from schemas.dataset.command import main

if __name__ == "__main__":
    sys.exit(main())
