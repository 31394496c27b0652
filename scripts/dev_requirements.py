"""Print the `dev` dependency group of a pyproject.toml, one requirement a line. Installs nothing.

pip reads dependency groups itself from version 25.1 on; the pip that comes with Python 3.11 does not.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def requirements(groups: Mapping[str, Sequence[Any]], name: str) -> Iterator[str]:
    """Yield the requirements of a group, and of the groups that it includes."""
    for one in groups[name]:
        if isinstance(one, str):
            yield one
        else:
            yield from requirements(groups, one["include-group"])


if __name__ == "__main__":
    listed = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["dependency-groups"]
    sys.stdout.write("\n".join(requirements(listed, "dev")) + "\n")
