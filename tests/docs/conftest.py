"""The manual's own code is a folder of scripts: the tests of the manual import it from there."""

import sys

from house import PROJECT

sys.path.insert(0, str(PROJECT / "scripts"))
