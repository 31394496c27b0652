"""Every field of every public struct shows its sentence, and what is declared is what is taken."""

import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
import pytest

from house import NOUNS, PACKAGE
from treadle import Budget, ConfigurationError
from treadle.events import RunFinished
from treadle.fields import NamedOptions, checked, explained, kind_of

EXPLAINED = "treadle.sessions.explain"
FACES = ("treadle", "treadle.testing", EXPLAINED, *(f"treadle.{noun}" for noun in NOUNS))


def public_structs() -> list[type[msgspec.Struct]]:
    named = [getattr(module, name) for module in map(importlib.import_module, FACES) for name in module.__all__]
    found = {one for one in named if isinstance(one, type) and issubclass(one, msgspec.Struct)}
    return sorted((one for one in found if one.__module__.startswith("treadle")), key=lambda one: one.__qualname__)


@pytest.mark.row("M-FIELDS")
def test_help_shows_a_sentence_for_each_field_of_a_public_struct():
    documented = {struct: inspect.getdoc(struct) or "" for struct in public_structs()}

    assert [one for one, said in documented.items() if not said.split("\n")[0].endswith((".", ":"))] == []
    assert [
        f"{struct.__name__}.{name}"
        for struct, said in documented.items()
        for name in struct.__struct_fields__
        if f"\n    {name}: " not in said
    ] == []


def test_documentation_is_whole_and_in_order():
    documented = inspect.getdoc(RunFinished) or ""

    assert documented.startswith("A run has ended.\n\nAttributes:\n    session_id: ")
    assert "\n    reason: The stop reason, such as `completed`.\n    status: " in documented
    shown = pydoc.plain(pydoc.render_doc(Budget))
    assert [name for name in Budget.__struct_fields__ if f"|      {name}: " not in shown] == []
    assert "The ten limits of one run." in shown


def test_without_sources_the_first_sentence_is_left():
    hide = "import linecache, inspect; inspect.getsource = lambda one: (_ for _ in ()).throw(OSError('no source'))"
    code = f"{hide}\nfrom treadle import Budget\nprint(Budget.__doc__.splitlines()[0])"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE, check=True)

    assert ran.stdout == "The ten limits of one run. None means no limit.\n"


class Options(msgspec.Struct, frozen=True, kw_only=True, metaclass=NamedOptions):
    names: tuple[str, ...] = ()
    share: float = 0.5


class HasSpeed(Protocol):
    label: str

    def speed(self) -> float: ...


class Fast:
    def speed(self) -> float:
        return 1.0


KINDS: list[tuple[Any, list[Any], list[Any]]] = [
    (int, [0, 10**400], [True, 1.0, "1", None]),
    (float, [1, 1.5, float("inf")], [True, float("nan"), 10**400, "1"]),
    (bool, [True], [0, "yes"]),
    (str | None, ["", None], [b"x", 5]),
    (Literal["a", "b"], ["a"], ["c", 5, None]),
    (Sequence[str], [["a"], ("a",), []], ["a", b"a", [5], {"a": 1}, None]),
    (tuple[str, int], [("a", 1)], [("a",), ("a", "b"), ["a", 1]]),
    (Iterable[str], [["a"], iter(["a"])], ["a", [5], 5]),
    (Mapping[str, int], [{"a": 1}, {}], [{1: 1}, {"a": "b"}, [("a", 1)]]),
    (Callable[[int], int], [len], [5]),
    (type[Fast], [Fast], [Fast()]),
    (HasSpeed, [Fast()], [Fast, 5, None]),
    (Fast, [Fast()], [Fast, 5]),
    (Any, [None, 5], []),
]


@pytest.mark.row("H21")
@pytest.mark.parametrize(("annotation", "fitting", "others"), KINDS, ids=lambda one: str(one)[:20])
def test_a_kind_takes_what_is_declared_and_nothing_else(annotation: Any, fitting: list[Any], others: list[Any]) -> None:
    kind = kind_of(annotation)

    assert [value for value in fitting if not kind.fits(value)] == []
    assert [value for value in others if kind.fits(value)] == []


@pytest.mark.row("H21")
async def test_a_border_refuses_before_anything_is_done() -> None:
    done: list[object] = []

    @checked
    def plain(text: str, *more: int, at: float = 1.0) -> None:
        done.append(text)

    @checked
    async def awaited(text: str) -> None:
        done.append(text)

    for call, words in (
        (lambda: plain(5), "text must be a string; got 5."),  # type: ignore[arg-type]
        (lambda: plain("a", 1, "b"), "more must be a whole number; got 'b'."),  # type: ignore[arg-type]
        (lambda: plain("a", at=None), "at must be a number; got None."),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match=f"^{re.escape(words)}$"):
            call()
    with pytest.raises(ConfigurationError, match="text must be a string"):
        await awaited(5)  # type: ignore[arg-type]
    assert done == []

    plain("a", 1, at=2)
    await awaited("b")
    assert done == ["a", "b"]


@pytest.mark.row("H21")
async def test_what_runs_at_every_step_says_so_only_once_it_has_failed() -> None:
    @explained
    def plain(text: str) -> int:
        return len(text)

    @explained
    async def awaited(text: str) -> str:
        return text.strip()

    assert (plain("ab"), await awaited(" a ")) == (2, "a")
    assert plain([1]) == 1  # type: ignore[arg-type]  # nobody looked, and no harm came of it
    with pytest.raises(ConfigurationError, match="text must be a string; got 5"):
        plain(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="text must be a string; got None"):
        await awaited(None)  # type: ignore[arg-type]

    @explained
    def broken(text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError):  # its arguments fit: the fault is its own
        broken("a")


@pytest.mark.row("H21")
def test_options_that_people_write_are_looked_at_and_those_read_back_are_not() -> None:
    assert Options(names=("a",), share=1) == Options(names=("a",), share=1.0)
    with pytest.raises(
        ConfigurationError, match=re.escape("Options names must be a list of strings; got 'a'. Write ['a'].")
    ):
        Options(names="a")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="Options share must be a number; got nan"):
        Options(share=float("nan"))
    assert msgspec.convert({"share": float("inf")}, Options).share == float("inf")


@pytest.mark.row("H21", "E09")
def test_a_refused_value_that_may_be_a_secret_is_not_shown() -> None:
    @checked
    def asked(api_key: str | None, url: str) -> None: ...

    for values in ((b"sk-live-1", "x"), ("x", b"postgresql://me:sk-live-1@db")):
        with pytest.raises(ConfigurationError, match="a value of type bytes") as told:
            asked(*values)  # type: ignore[arg-type]
        assert "sk-live-1" not in str(told.value)
