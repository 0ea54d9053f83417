"""`python -m schemas.image_samples`: drawn images alone."""

import sys

from schemas.samples.command import image_main

if __name__ == "__main__":
    sys.exit(image_main())
