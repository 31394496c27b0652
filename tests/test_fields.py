"""Every field of every public struct shows its sentence: in `help()`, and below the field in the source for editors."""

import importlib
import inspect
import pydoc
import subprocess
import sys

import msgspec
import pytest

from house import NOUNS, PACKAGE
from treadle import Budget
from treadle.events import RunFinished

EXPLAINED = "treadle.sessions.explanation"
FACES = ("treadle", "treadle.testing", EXPLAINED, *(f"treadle.{noun}" for noun in NOUNS))


def public_structs() -> list[type[msgspec.Struct]]:
    named = [getattr(module, name) for module in map(importlib.import_module, FACES) for name in module.__all__]
    found = {one for one in named if isinstance(one, type) and issubclass(one, msgspec.Struct)}
    return sorted((one for one in found if one.__module__.startswith("treadle")), key=lambda one: one.__qualname__)


@pytest.mark.row("M-FIELDS")
@pytest.mark.parametrize("struct", public_structs(), ids=lambda one: one.__name__)
def test_help_shows_a_sentence_for_each_field_of_a_public_struct(struct):
    shown = pydoc.plain(pydoc.render_doc(struct))
    documented = inspect.getdoc(struct) or ""

    assert documented.split("\n")[0].endswith((".", ":"))
    fields = struct.__struct_fields__
    assert [name for name in fields if f"\n    {name}: " not in documented] == []
    assert [name for name in fields if f"|      {name}: " not in shown] == []


def test_documentation_is_whole_and_in_order():
    documented = inspect.getdoc(RunFinished) or ""

    assert documented.startswith("A run has ended for good.\n\nAttributes:\n    session_id: ")
    assert "\n    reason: The stop reason, such as `completed`.\n    status: " in documented
    assert (inspect.getdoc(Budget) or "").startswith("The ten limits of one run.")


def test_without_sources_the_first_sentence_is_left():
    hide = "import linecache, inspect; inspect.getsource = lambda one: (_ for _ in ()).throw(OSError('no source'))"
    code = f"{hide}\nfrom treadle import Budget\nprint(Budget.__doc__.splitlines()[0])"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE, check=True)

    assert ran.stdout == "The ten limits of one run. None means no limit.\n"
