"""`python -m treadle`: the command line where no script is installed. Holds nothing else."""

import sys

# Python looks for modules in the working directory first. There a model may write: it puts nothing in place of a module of ours.
if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

from treadle.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
