"""`python -m schemas.init`."""

import sys

from schemas.init.command import main

if __name__ == "__main__":
    sys.exit(main())
