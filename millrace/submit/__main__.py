"""`python -m millrace.submit`."""

import sys

from millrace.submit.command import main

if __name__ == "__main__":
    sys.exit(main())
