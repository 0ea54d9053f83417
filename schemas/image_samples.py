"""`python -m schemas.image_samples`: the command of `schemas.samples.images`."""

import sys

from schemas.samples.images import main

if __name__ == "__main__":
    sys.exit(main())
