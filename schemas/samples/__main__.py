"""`python -m schemas.samples`."""

import sys

from schemas.samples.tables import main

if __name__ == "__main__":
    sys.exit(main())
