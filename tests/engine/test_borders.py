"""Borders: whatever a tool's author returns, raises or declares, each call has its result and the run continues."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, raising, read, run_calls, statuses, tool_of
from treadle import Agent, Budget, Decision, Done, Rejected, RunResult, Tool, ToolOutput, allow, open_session
from treadle.errors import InvalidArguments, Transient
from treadle.testing import FakeClock, ScriptedModel, call, text

ONE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Silent(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Exiting(Exception):
    """An exception that ends the process when it is asked what it is."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class Leaving(BaseException):
    """An error of somebody's own that `except Exception` does not see."""


class Strange:
    """A value that raises whatever it is asked."""

    def __init__(self, error: BaseException) -> None:
        object.__setattr__(self, "error", error)

    def __getattribute__(self, name: str) -> Any:
        raise object.__getattribute__(self, "error")

    def __repr__(self) -> str:
        raise object.__getattribute__(self, "error")

    __str__ = __repr__
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        raise object.__getattribute__(self, "error")

    def __bool__(self) -> bool:
        raise object.__getattribute__(self, "error")


class Endless(Mapping[str, Any]):
    """A mapping without end, of long texts. It says that it has one item."""

    TEXT = "x" * 2**20

    def __getitem__(self, key: str) -> Any:
        return self.TEXT

    def __iter__(self) -> Iterator[str]:
        return map(str, itertools.count())

    def __len__(self) -> int:
        return 1


class EndlessList(list[int]):
    """A list whose iteration has no end."""

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(1)


class Breaking(Mapping[str, Any]):
    """A mapping that breaks while it is read."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getitem__(self, key: str) -> Any:
        raise self.error

    def __iter__(self) -> Iterator[str]:
        raise self.error

    def __len__(self) -> int:
        raise self.error


class Sly(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("sly")


def released() -> memoryview:
    view = memoryview(b"bytes")
    view.release()
    return view


def nested_group(depth: int = 1500) -> BaseException:
    error: Exception = ValueError("the innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


def odd_os_error() -> OSError:
    error = OSError(5, "Input/output error", "/secret/path")
    error.strerror = Strange(RuntimeError("no"))
    return error


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


RETURNED: dict[str, Callable[[], Any]] = {
    "released memoryview": released,
    "mapping without end": Endless,
    "a mapping without end inside": lambda: {"a": [Endless()]},
    "mapping that raises": lambda: Breaking(RuntimeError("no")),
    "mapping that exits": lambda: Breaking(SystemExit(1)),
    "mapping that leaves": lambda: Breaking(Leaving()),
    "a value that raises": lambda: Strange(RuntimeError("no")),
    "a value that exits": lambda: Strange(SystemExit(1)),
    "output of a released view": lambda: ToolOutput(data=released()),
    "output that raises": lambda: ToolOutput(data=1, display=Strange(RuntimeError("no"))),
    "media that raise": lambda: ToolOutput(data=1, media=Strange(RuntimeError("no"))),
    "itself": lambda: [value := [], value.append(value)][0],
    "media that exit": lambda: ToolOutput(data=1, media=(Strange(SystemExit(1)),)),
}

RAISED: dict[str, Callable[[], BaseException]] = {
    "deep group": nested_group,
    "without words": Silent,
    "words that exit": Exiting,
    "group of them": lambda: ExceptionGroup("many", [Silent(), Exiting()]),
    "with such a cause": lambda: caused(RuntimeError("outer"), Exiting()),
    "strange system error": odd_os_error,
    "rejected with a strange body": lambda: Rejected(Strange(RuntimeError("no"))),
    "rejected with an exiting body": lambda: Rejected(Strange(SystemExit(1))),
    "rejected without end": lambda: Rejected(Endless()),
    "rejected with a strange code": lambda: Rejected({}, code=Strange(RuntimeError("no"))),
    "transient with a strange wait": lambda: Transient("x", retry_after_seconds=Strange(RuntimeError("no"))),
    "transient with a strange code": lambda: Transient("x", code=Strange(SystemExit(1))),
    "exit": lambda: SystemExit(Strange(RuntimeError("no"))),
    "leaving": Leaving,
    "generator exit": GeneratorExit,
    "async stop iteration": StopAsyncIteration,
    "stop iteration": StopIteration,
}


async def played(*tools: Tool, **words: Any) -> RunResult:
    """Call every tool side by side, and `good` before and after; return the result."""
    good = read(Recorder("fine"), "good")
    calls = [call("good"), *(call(tool.name, n=1) for tool in tools), call("good", n=2)]
    left = ""
    async with open_session("memory:", clock=FakeClock(auto=True)) as session:
        model = ScriptedModel([calls, text("Done.")])
        try:
            endless = Budget(max_wall_time_seconds=None)  # the clock jumps on while a thread looks at a large value
            result = await Agent(model, tools=[good, *tools], budget=endless, **words).run("go", session=session)
        except BaseException as error:  # noqa: BLE001 - a test's own report must not choke on a hostile error
            left = type(error).__name__
        assert not left, f"{left} left the run"
        await check_session(session)
    assert result.completed, result.message
    assert [result.tool_calls[0].status, result.tool_calls[-1].status] == ["ok", "ok"]
    return result


@pytest.mark.row("V01", "TF8", "TF4")
@pytest.mark.parametrize("value", RETURNED.values(), ids=RETURNED.keys())
@pytest.mark.parametrize("kind", ["read", "unsafe", "thread", "schema", "check", "done"])
async def test_whatever_a_tool_returns_is_one_result(value, kind):
    async def run(arguments: Any, ctx: Any) -> Any:
        if kind in ("check", "done"):
            raise TimeoutError
        return value()

    async def ask(arguments: Any, ctx: Any) -> Any:
        return Done(value()) if kind == "done" else value()

    words: dict[str, Any] = {"effect": "read"} if kind == "read" else {"effect": "unsafe", "permission": "allow"}
    if kind == "schema":
        words["output_schema"], words["error_schema"] = {"type": "string"}, {"type": "object", "required": ["no"]}
    if kind in ("check", "done"):
        words["check"] = ask

    result = await played(tool_of((lambda arguments, ctx: value()) if kind == "thread" else run, "odd", **words))

    assert statuses(result)[1] in ("unexpected_result_shape", "failed", "outcome_unknown")


FACE = "display must be text and media a tuple of Media"


@pytest.mark.row("TF4", "F06")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "It is not JSON: $ is nan"), (float("inf"), "inf"), ({1, 2}, "a set"), ({1: 2}, "a key that is a int"), (object(), "object"), ("\ud800", "surrogate"),
        ({"a": b"bytes"}, "bytes"), (10**5000, "digits"), (Sly(a=1), ""), (lambda: 1, "function"), (ToolOutput(data={1}), "a set"),
        (ToolOutput(display=5), FACE), (ToolOutput(media=("x",)), FACE), (ToolOutput(data=1, media=(object(),)), FACE), (ToolOutput(display="\ud800"), ""),
        (ToolOutput(data=1, artifact="text"), "artifact must be bytes: got 'text'"), (ToolOutput(data=1, facts={"a": {1}}), "facts must be a JSON object"),
    ],
    ids=range(17),
)  # fmt: skip
async def test_what_is_no_json_is_an_unexpected_shape_and_named_by_its_kind(value, words):
    result = await run_calls(call("look"), tools=[read(Recorder(value))])

    assert statuses(result) == ["unexpected_result_shape"]
    assert words in str(content(result))
    await check_session(result.session)


async def test_of_a_list_whose_iteration_has_no_end_only_what_it_stores_is_read():
    result = await played(read(Recorder(EndlessList([1, 2])), "odd"))

    assert result.messages[2].results[1].content == "[1,2]"


@pytest.mark.row("V01", "TF8", "TF4")
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED.keys())
@pytest.mark.parametrize("kind", ["read", "unsafe", "keyed", "thread", "check"])
async def test_whatever_a_tool_raises_is_one_result(error, kind):
    async def run(arguments: Any, ctx: Any) -> Any:
        raise TimeoutError if kind == "check" else error()

    async def ask(arguments: Any, ctx: Any) -> Any:
        raise error()

    def blocking(arguments: Any, ctx: Any) -> Any:
        raise error()

    effect = kind if kind in ("read", "keyed") else "unsafe"
    words: dict[str, Any] = {"check": ask} if kind == "check" else {}
    run_ = blocking if kind == "thread" else run

    result = await played(tool_of(run_, "odd", effect=effect, permission="allow", **words))

    assert statuses(result)[1] in ("failed", "rejected", "outcome_unknown", "timeout")


FAILING = [
    ValueError("\ud800"), Exception("x" * 10_000_000), BaseException("base"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(),
    ExceptionGroup("two", [ValueError("a"), TypeError("b")]), BaseExceptionGroup("one", [SystemExit()]), RecursionError(), MemoryError(),
]  # fmt: skip


@pytest.mark.row("TF1")
@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize("error", FAILING, ids=lambda error: type(error).__name__)
async def test_whatever_a_read_raises_is_told_in_few_words(error, is_sync):
    function = raises(lambda: error) if is_sync else raising(error)
    result = await run_calls(call("look"), call("other"), tools=[read(function, retries=0), read(Recorder(), "other")])

    assert statuses(result) == ["failed", "ok"]
    assert len(result.messages[2].results[0].content) < 2000
    await check_session(result.session)


@pytest.mark.row("TF1")
async def test_a_tool_that_tries_to_end_the_process_is_not_tried_again():
    result = await run_calls(call("look"), tools=[read(raising(SystemExit(1)))])

    assert [(one.status, one.attempts) for one in result.tool_calls] == [("failed", 1)]


OUT: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(1),
    "leaving": Leaving,
    "without words": Silent,
    "words that exit": Exiting,
    "deep group": nested_group,
    "generator exit": GeneratorExit,
}


def raises(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def function(*given: Any) -> Any:
        raise error()

    return function


def raises_later(error: Callable[[], BaseException]) -> Callable[..., Any]:
    async def function(*given: Any) -> Any:
        await asyncio.sleep(0)
        raise error()

    return function


@pytest.mark.row("V01", "V05", "S05", "P01", "TF4", "F12")
@pytest.mark.parametrize("error", OUT.values(), ids=OUT.keys())
@pytest.mark.parametrize(
    ("word", "function", "status"),
    [
        ("resources", raises, "ok"), ("visible", raises, "unknown_tool"), ("effect", raises, "ok"), ("validate", raises, "failed"),
        ("validate", raises_later, "failed"), ("convert", raises, "failed"),
    ],
)  # fmt: skip
async def test_whatever_a_tools_own_functions_raise_is_no_end_of_the_run(word, function, status, error):
    recorder = Recorder()
    words = {"effect": "unsafe", "permission": "allow", word: function(error)}

    result = await played(tool_of(recorder, "odd", **words))

    assert statuses(result)[1] == status
    assert recorder.runs == (status == "ok")
    if status == "failed":
        assert content(result, 1)["code"] == "internal_error"


@pytest.mark.row("V04", "TF4")
@pytest.mark.parametrize("words", [Silent, Exiting])
async def test_a_check_that_cannot_say_what_is_wrong_still_refuses(words):
    class Wordless(InvalidArguments):
        __str__ = words.__str__

    recorder = Recorder()

    result = await played(act(recorder, "odd", validate=raises(lambda: Wordless("x"))))

    assert (statuses(result)[1], recorder.runs) == ("invalid_arguments", 0)


@pytest.mark.row("S04")
@pytest.mark.parametrize(
    "named", [Endless, lambda: Breaking(SystemExit(1)), lambda: {Strange: "write"}, lambda: {1: "read"}, list]
)
async def test_resources_that_cannot_be_read_mean_exclusive(named):
    result = await played(act(Recorder(), "odd", resources=lambda arguments: named()))

    assert statuses(result)[1] == "ok"


@pytest.mark.row("V02")
@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(1), Leaving()], ids=str)
async def test_a_tool_whose_visibility_cannot_be_read_is_not_offered(error):
    result = await played(act(Recorder(), "odd", visible=lambda session: Strange(error)))

    assert statuses(result)[1] == "unknown_tool"


class Raising:
    """A policy and an interceptor that raise."""

    def __init__(self, error: Callable[[], BaseException], *, where: str, later: bool) -> None:
        self.error, self.where, self.later = error, where, later

    def decide(self, call: Any, session: Any) -> Any:
        return self._do("decide", call, allow("*").decide(call, session))

    def before(self, call: Any) -> Any:
        return self._do("before", call, call)

    def after(self, call: Any, result: Any) -> Any:
        return self._do("after", call, result)

    def _do(self, where: str, call: Any, answer: Any) -> Any:
        if self.where != where or call.name != "odd":
            return answer
        return raises_later(self.error)() if self.later else raises(self.error)()


@pytest.mark.row("V01", "P01", "E03")
@pytest.mark.parametrize("error", OUT.values(), ids=OUT.keys())
@pytest.mark.parametrize("later", [False, True], ids=["now", "later"])
@pytest.mark.parametrize(("where", "status"), [("decide", "denied"), ("before", "denied"), ("after", "ok")])
async def test_whatever_a_policy_or_an_interceptor_raises_is_no_end_of_the_run(where, status, later, error):
    recorder, odd = Recorder(), Raising(error, where=where, later=later)
    words: dict[str, Any] = {"policy": odd} if where == "decide" else {"interceptors": [odd]}

    result = await played(act(recorder, "odd", parameters=ONE), **words)

    assert statuses(result)[1] == status
    assert recorder.runs == (status == "ok")


# --- words of others: the model gets valid, bounded JSON of them
HOSTILE = {
    "half a character": "caf\udce9",
    "no number": float("nan"),
    "endless": float("inf"),
    "a set": {1, 2},
    "bytes": b"\x00",
    "a huge number": 10**400,
    "deep": [[[[[[["x"]]]]]]],
    "an object": object,
}


@pytest.mark.row("V01", "V04", "TF4", "F04", "MF7")
@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
async def test_what_a_check_and_what_a_service_says_reach_the_model_as_json(value):
    rows = [{"field": "x", "constraint": "good", "value": value, 7: (value,)}]
    checked = read(Recorder(), "checked", validate=raises(lambda: InvalidArguments("no good", rows)))
    served = read(raising(Rejected({"error": "NO", "value": value}, code="conflict")), "served")

    result = await run_calls(call("checked"), call("served"), tools=[checked, served])

    first, second = (json.loads(one.content) for one in result.messages[2].results)
    assert (first["type"], first["details"][0]["field"]) == ("invalid_arguments", "x")
    assert (second["type"], second["code"], bool(second["details"])) == ("rejected", "conflict", True)


@pytest.mark.row("P03", "MF7")
async def test_a_policys_reason_that_is_no_unicode_still_reaches_the_model():
    class Policy:
        def decide(self, checked: object, session: object) -> Decision:
            return Decision(kind="deny", reason="caf\udce9 " + "x" * 100_000)

    result = await run_calls(call("act"), tools=[act(Recorder())], policy=Policy())

    assert content(result)["type"] == "denied"
    assert "caf?" in content(result)["message"]
    assert len(content(result)["message"]) < 10_000
