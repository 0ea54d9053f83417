"""`python -m schemas.samples`."""

import sys

from schemas.samples.command import main

if __name__ == "__main__":
    sys.exit(main())
