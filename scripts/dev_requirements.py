# ruff: noqa: INP001 - a folder of scripts is no package
"""Print the `dev` dependency group of a pyproject.toml, one requirement a line. Installs nothing.

pip reads dependency groups itself from version 25.1 on; the pip that comes with Python 3.11 does not.
"""

import sys
import tomllib
from pathlib import Path

if __name__ == "__main__":
    groups = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["dependency-groups"]
    sys.stdout.write("\n".join(groups["dev"]) + "\n")
