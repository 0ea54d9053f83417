"""`python -m trainer.doctor`."""

import sys

from trainer.doctor.command import main

if __name__ == "__main__":
    sys.exit(main())
