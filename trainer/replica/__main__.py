"""`python -m trainer.replica`."""

import sys

from trainer.replica.command import main

if __name__ == "__main__":
    sys.exit(main())
