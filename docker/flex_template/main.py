"""The file that the launcher of a Flex Template runs."""

import sys

from beam_jobs.flex_template import main

if __name__ == "__main__":
    sys.exit(main())
