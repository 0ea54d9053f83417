"""`python -m schemas.spec`."""

import sys

from schemas.spec.command import main

if __name__ == "__main__":
    sys.exit(main())
