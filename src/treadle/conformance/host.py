"""Host: runs an adapter in processes of its own, one a job. Needs the standard library only, so that any Python runs it.

`python host.py module:adapter --serve` loads the adapter once, and forks for each job that comes on standard input as a line of JSON.
`python host.py module:adapter --job FILE` carries out one job.

An adapter is a function (plain or async) of one `Job` that runs its loop once and returns the final answer: a text, or an object such
as {"answer": "...", "completed": false}. Its attributes say more: `offers` (what the loop can do), `name`, `version`, `prepare` (a
function that is called once, before the first job), `forks` (False to start a new process for each job, where a fork breaks something).
"""

import argparse
import asyncio
import contextlib
import dataclasses
import fcntl
import gc
import importlib
import inspect
import json
import os
import selectors
import signal
import sys
import threading
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Job", "JobTool", "Ledger", "carry_out", "main"]

_SHOWN = 2_000
"""Characters of a call's arguments that the ledger keeps."""
_FOREVER = 3_600
"""Seconds that a tool hangs. The suite ends its process long before."""


# --- The ledger: what was executed. Written by the process in which the tool runs, one line an act.


class Ledger:
    """A file of lines. Processes and threads append to it, and count what is in it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def start(self, tool: str, arguments: Mapping[str, Any]) -> int:
        """Write that an execution has begun, and return its number among those of its tool."""
        with self._path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            begun: int = sum(line["tool"] == tool and line["event"] == "started" for line in map(json.loads, file))
            line = {"event": "started", "tool": tool, "number": begun + 1, "arguments": _short(arguments)}
            file.write(json.dumps(line) + "\n")
        return begun + 1

    def end(self, event: str, tool: str, number: int) -> None:
        """Write how an execution ended: `done` or `failed`."""
        with self._path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps({"event": event, "tool": tool, "number": number}) + "\n")


def _short(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    text = json.dumps(arguments, default=repr)
    return arguments if len(text) <= _SHOWN else {"shortened": text[:_SHOWN], "characters": len(text)}


# --- Tools: functions that write to the ledger and do what their scenario says.


def _cycle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


_ERRORS = {one.__name__: one for one in (RuntimeError, TimeoutError, ConnectionResetError, SystemExit)}
_SPECIAL: Mapping[str, Callable[[], Any]] = {
    "nan": lambda: {"price": float("nan")},
    "surrogate": lambda: "a lone \ud83d here",
    "bytes": lambda: b"\xff\xfe",
    "object": object,
    "cycle": _cycle,
    "megabyte": lambda: "x" * 1_000_000,
}
"""Results that JSON does not have, or that are long."""


_KINDS: Mapping[Any, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class JobTool:
    """One tool of a job.

    Attributes:
        name, description, parameters (JSON Schema): what the model is to see.
        effect: "read" or "write".
        needs_approval: Whether a person must allow each call.
        function, async_function: The tool as a function of keywords, with a signature and type hints made from the schema.
    """

    def __init__(self, told: Mapping[str, Any], ledger: str, subject: int | None = None) -> None:
        self.name: str = told["name"]
        self.description: str = told["description"]
        self.parameters: dict[str, Any] = told["parameters"]
        self.effect: str = told["effect"]
        self.needs_approval: bool = told["needs_approval"]
        self._does: Mapping[str, Any] = told["behaviour"]
        self._ledger = Ledger(ledger)
        self._subject = os.getpid() if subject is None else subject
        self.function = self._dressed(lambda **arguments: self.run(arguments))
        self.async_function = self._dressed(self._of_keywords)

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Execute the tool with an object of arguments. It may block."""
        number = self._ledger.start(self.name, arguments)
        if self._never_ends(number):
            threading.Event().wait(_FOREVER)
        threading.Event().wait(self._does.get("lingers", 0))
        return self._finished(number, arguments)

    async def run_async(self, arguments: Mapping[str, Any]) -> Any:
        """Execute the tool with an object of arguments."""
        number = self._ledger.start(self.name, arguments)
        if self._never_ends(number):
            await asyncio.sleep(_FOREVER)
        await asyncio.sleep(self._does.get("lingers", 0))  # so that calls which may not overlap would
        return self._finished(number, arguments)

    async def _of_keywords(self, **arguments: Any) -> Any:
        return await self.run_async(arguments)

    def _never_ends(self, number: int) -> bool:
        """Whether this execution hangs. One that is to be interrupted sends the signal of Ctrl-C first."""
        if self._does.get("interrupts") and number == 1:
            os.kill(self._subject, signal.SIGINT)
            return True
        hangs: int = self._does.get("hangs", 0)
        return number <= hangs

    def _finished(self, number: int, arguments: Mapping[str, Any]) -> Any:
        does = self._does
        if does.get("kills") == "before" and number == 1:
            self._kill()
        if number <= does.get("fails", 0):
            self._ledger.end("failed", self.name, number)
            raise _ERRORS[does.get("raises", "RuntimeError")](does.get("error", "the service is down"))
        self._ledger.end("done", self.name, number)
        if does.get("kills") == "after" and number == 1:
            self._kill()
        if "special" in does:
            return _SPECIAL[does["special"]]()
        return does["returns"] if "returns" in does else _told(self.name, arguments)

    def _kill(self) -> None:
        os.killpg(os.getpgid(self._subject), signal.SIGKILL)
        if self._subject != os.getpid():
            raise ConnectionResetError("the process that called is gone")
        threading.Event().wait(_FOREVER)  # the signal comes at once, and no code of the subject runs meanwhile

    def _dressed(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with the name, description and signature that libraries read a schema from."""
        schemas, required = self.parameters.get("properties", {}), self.parameters.get("required", [])
        signature = inspect.Signature(
            [
                _parameter(name, schemas[name], is_required=name in required)
                for name in sorted(schemas, key=lambda name: name not in required)
            ],
            return_annotation=str,
        )
        if inspect.iscoroutinefunction(run):

            async def function(*values: Any, **keywords: Any) -> Any:
                return await run(**_given(signature, values, keywords))
        else:

            def function(*values: Any, **keywords: Any) -> Any:  # type: ignore[misc]  # the plain one of the two
                return run(**_given(signature, values, keywords))

        made: Any = function
        made.__name__ = made.__qualname__ = self.name
        made.__doc__ = self.description
        if schemas:
            lines = (f"\n    {name}: {schema.get('description', name)}" for name, schema in schemas.items())
            made.__doc__ += "\n\nArgs:" + "".join(lines)
        made.__signature__ = signature
        made.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()} | {"return": str}
        return function


def _told(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} ran with " + ", ".join(f"{key}={value}" for key, value in sorted(arguments.items()))


def _parameter(name: str, schema: Mapping[str, Any], *, is_required: bool) -> inspect.Parameter:
    hint = _hint(schema)
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=hint if is_required else typing.Optional[hint],  # noqa: UP045 - made at run time
        default=inspect.Parameter.empty if is_required else None,
    )


def _given(signature: inspect.Signature, values: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that were given: an optional one that is None was left out.

    Raises:
        TypeError: One is missing, or not known, as Python has it of any function.
    """
    named = signature.bind(*values, **keywords).arguments
    optional = {one.name for one in signature.parameters.values() if one.default is None}
    return {name: value for name, value in named.items() if value is not None or name not in optional}


def _hint(schema: Mapping[str, Any]) -> Any:
    """Return the type that a person would write. Limits, and the fields of objects, are in it where pydantic is installed."""
    if "enum" in schema:
        return typing.Literal[tuple(schema["enum"])]
    if schema.get("type") == "array" and "items" in schema:
        return list.__class_getitem__(_hint(schema["items"]))
    plain = _KINDS.get(schema.get("type"), Any)
    try:
        import pydantic  # noqa: PLC0415 - the library that reads the hint has loaded it
        import typing_extensions  # noqa: PLC0415 - pydantic needs it
    except ImportError:
        return plain
    if "properties" in schema:
        needed = schema.get("required", ())
        marks = {
            name: typing_extensions.Required if name in needed else typing_extensions.NotRequired
            for name in schema["properties"]
        }
        fields = {name: marks[name][_hint(one)] for name, one in schema["properties"].items()}
        return typing_extensions.TypedDict("Fields", fields)  # type: ignore[operator]  # made at run time
    limits = {ours: schema[its] for its, ours in (("minimum", "ge"), ("maximum", "le")) if its in schema}
    return typing.Annotated[plain, pydantic.Field(**limits)] if limits else plain


# --- Jobs: one run of the subject's loop.


@dataclasses.dataclass(kw_only=True)
class Job:
    """What the subject is to do."""

    action: str
    """`start`: the prompt. `resume`: continue what a killed process had begun. `decide`: the person has answered, see `decisions`."""
    prompt: str
    system: str
    """The system prompt."""
    dialect: str
    """`chat`, `responses`, `anthropic` or `gemini`."""
    base_url: str
    """The provider's address, ending in /v1."""
    root_url: str
    """The same without /v1."""
    api_key: str
    model: str
    """The name of the model."""
    stream: bool
    """Whether answers are to be streamed, if the loop can."""
    state: Path
    """A folder that outlives the process."""
    session: str
    """A name that stays the same over the processes of a scenario."""
    keeps_state: bool
    """Whether a later process continues this conversation."""
    max_steps: int
    """Model responses with calls that a run may have."""
    max_attempts: int
    """Attempts of one model request."""
    tool_timeout: float | None
    """Seconds that a tool may take; None for no limit."""
    model_timeout: float | None
    """Seconds that the provider may be silent; None for the loop's own limit."""
    max_result_chars: int | None
    """Characters of one result that the model is shown; None for the loop's own limit."""
    decisions: list[dict[str, Any]]
    """What the person has decided: objects of tool, arguments and allow."""
    tools: list[JobTool]

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Job":
        """Return the job of a JSON object."""
        tools = [JobTool(one, told["ledger"]) for one in told["tools"]]
        known = {one.name for one in dataclasses.fields(cls)}
        given = {name: value for name, value in told.items() if name in known}
        return cls(**{**given, "tools": tools, "state": Path(told["state"])})


_Adapter = Callable[[Job], Any]


def carry_out(adapter: _Adapter, job: Job) -> int:
    """Run the adapter on one job, print its outcome as the last line of standard output, and return the exit code."""
    try:
        outcome = adapter(job)
        if inspect.isawaitable(outcome):
            outcome = asyncio.run(_awaited(outcome))
    except KeyboardInterrupt:
        _print({"answer": None, "completed": False, "error": "interrupted"})
        return 130
    except BaseException as exc:  # noqa: BLE001 - whatever the loop raises is its outcome
        traceback.print_exc()
        _print({"answer": None, "completed": False, "error": f"{type(exc).__name__}: {exc}"[:_SHOWN]})
        return 1
    _print({"completed": True, **(outcome if isinstance(outcome, dict) else {"answer": outcome})})
    return 0


async def _awaited(outcome: typing.Awaitable[Any]) -> Any:
    return await outcome


def _print(outcome: Mapping[str, Any]) -> None:
    sys.stdout.write("\n" + json.dumps(outcome, default=str) + "\n")


def _load(name: str) -> _Adapter:
    module, colon, attribute = name.partition(":")
    if not colon:
        sys.exit(f"{name!r} is not the name of an adapter: write module:function, such as my_loop:adapter.")
    # As `python -m` has it. The folder of this file, which is there now, holds no module for others.
    sys.path[0] = str(Path.cwd())
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as exc:
        sys.exit(f"The adapter {name!r} cannot be loaded: {exc}. Run the suite in the folder of its module.")
    return typing.cast("_Adapter", found)


# --- Serving: the adapter is loaded once, and each job runs in a fork.


class _Mother:
    """The process that has loaded the adapter. It writes what happens as lines of JSON."""

    def __init__(self, adapter: Any, control: int) -> None:
        self._adapter = adapter
        self._control = control
        self._running: dict[int, int] = {}
        """The id of each job by its process."""

    def serve(self) -> None:
        """Fork for each job that comes on standard input, and say when it has ended."""
        woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        about = {name: str(getattr(self._adapter, name, "")) for name in ("name", "version")}
        offers = sorted(getattr(self._adapter, "offers", ()))
        self._tell(**about, offers=offers, forks=getattr(self._adapter, "forks", True))
        gc.freeze()  # a child that collects would copy what it looks at
        waiting = selectors.DefaultSelector()
        for source in (0, woken):
            waiting.register(source, selectors.EVENT_READ)
        asked = b""
        while True:
            for key, _ in waiting.select():
                content = os.read(key.fd, 65_536)
                if key.fd == woken:
                    self._reap()
                elif content:
                    *lines, asked = (asked + content).split(b"\n")
                    for line in lines:
                        self._fork(json.loads(line))
                else:
                    return self._end()

    def _fork(self, asked: Mapping[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            self._be_child(asked)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self._running[pid] = asked["id"]
        self._tell(id=asked["id"], pid=pid)

    def _be_child(self, asked: Mapping[str, Any]) -> typing.NoReturn:
        code = 1
        try:
            os.setpgid(0, 0)
            os.close(self._control)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number, path in ((0, os.devnull), (1, asked["stdout"]), (2, asked["stderr"])):
                file = os.open(path, (os.O_WRONLY | os.O_CREAT | os.O_APPEND) if number else os.O_RDONLY, 0o600)
                os.dup2(file, number)
                os.close(file)
            code = carry_out(self._adapter, Job.read(asked["job"]))
        except BaseException:  # noqa: BLE001 - nothing may return into the mother's code
            traceback.print_exc()
        finally:
            _leave(code)

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._tell(id=self._running.pop(pid), exit=os.waitstatus_to_exitcode(status))

    def _end(self) -> None:
        for pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _tell(self, **told: Any) -> None:
        os.write(self._control, json.dumps(told).encode() + b"\n")


def _leave(code: int) -> typing.NoReturn:
    """End the process. Threads of tools that hang do not matter any more."""
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Load the adapter, and carry out one job, or all that come."""
    reader = argparse.ArgumentParser(description="Run an adapter of the conformance suite.")
    reader.add_argument("adapter")
    what = reader.add_mutually_exclusive_group(required=True)
    what.add_argument("--job", type=Path)
    what.add_argument("--serve", action="store_true")
    given = reader.parse_args()
    control = os.dup(1)
    os.dup2(2, 1)  # what a library prints while it loads belongs to no job
    adapter = _load(given.adapter)
    if given.serve:
        getattr(adapter, "prepare", lambda: None)()
        _Mother(adapter, control).serve()
        return
    os.dup2(control, 1)
    _leave(carry_out(adapter, Job.read(json.loads(given.job.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
