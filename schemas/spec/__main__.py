"""`python -m schemas.spec`."""

import sys

from schemas.spec.shipped import main

if __name__ == "__main__":
    sys.exit(main())
