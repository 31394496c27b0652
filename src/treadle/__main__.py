"""`python -m treadle`: the command line where no script is installed. Holds nothing else."""

import sys

from treadle.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
