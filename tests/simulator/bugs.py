"""Bugs put in by hand, each of which the simulator must find: `python -m simulator.bugs` tries them all.

Each is applied to a copy of the sources, and lives are lived on that copy until a promise is broken.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

__all__ = ["BUGS", "TREADLE", "Bug", "hunt"]

PROJECT = Path(__file__).resolve().parent.parent.parent
TREADLE = PROJECT / "src" / "treadle"


class Bug(NamedTuple):
    """A change of the sources that breaks a promise."""

    name: str
    file: str
    good: str
    bad: str
    first: int = 0
    """The seed at which a hunt begins: close to one that finds it, where those from 0 take long."""


BUGS = (
    Bug("an intent is not synced before its call acts", "engine/tool_calls/execution.py", "durable=_acts(calls),", "durable=False,"),
    Bug(
        "a call in doubt runs again and nobody is asked",
        "engine/tool_calls/recovery.py",
        "return not is_unsafe or await self._resolve(state, decided, finisher)",
        "return True",
    ),
    Bug("edited arguments are ignored", "engine/tool_calls/planning.py", "if answer.arguments is None:", "if answer is not None:"),
    Bug(
        "calls that will not start get no result",
        "engine/tool_calls/execution.py",
        "        if results:\n",
        "        if results and self._interrupt.stop is None:\n",
    ),
    Bug("each attempt has its own key", "engine/tool_calls/attempts.py", "return self._call.key", 'return f"{self._call.key}{self.attempt}"'),
    Bug("an unsafe call is retried", "engine/tool_calls/attempts.py", "not may_retry_call(call.effect, cause)", "False"),
    Bug("the calls of a response that was cut off run", "engine/tool_calls/refusals.py", "case Finish.LENGTH:", "case Finish.CALLS if closing:"),
    Bug("a failure hides that the call may have acted", "engine/tool_calls/attempts.py", "acted = not call.effect.is_read", "acted = False"),
    Bug(
        "a call that acts starts while the response streams",
        "engine/tool_calls/early.py",
        "is_wanted = call.effect.is_read and is_allowed and",
        "is_wanted = is_allowed and",
    ),
    Bug(
        "a steered message is added twice after a crash",
        "sessions/inbox.py",
        "case LeftMessage() if message.id not in state.message_ids:",
        "case LeftMessage():",
    ),
    Bug(
        "a resolution is told between calls and their results",
        "engine/lifecycle.py",
        "    if session.state.has_open_calls:\n        return []\n",
        "",
        first=1330,
    ),
    Bug("a move does not close its source", "sessions/maintenance.py", "    if not state.moved_to:\n        await", "    if False:\n        await"),
    Bug("a run begins in a suspended session", "sessions/maintenance.py", 'if state.own_status != "active":', "if False:"),
    Bug(
        "the turns of the model have no limit",
        "budgets.py",
        "turns, calls, *used = _counts(total)",
        "turns, calls, *used = ('max_model_turns', None), *_counts(total)[1:]",
    ),
    Bug(
        "a call that equals one in doubt runs unasked",
        "engine/tool_calls/planning.py",
        "return None if doubt is None else consent.equals_doubt(doubt)",
        "return None",
        first=450,
    ),
    Bug("what an interceptor changes is lost", "engine/hooks.py", "return strictest, call.call if proposed == call.call else proposed", "return strictest, call.call"),
    Bug(
        "a polling tool counts as repetition",
        "engine/rules/tries.py",
        'return "" if call.name in self._polling else digest or streak_key(call, digest)',
        "return streak_key(call, digest)",
    ),
    Bug("done_when is not asked", "engine/tool_calls/execution.py", "if self._done is not None and not is_closing and not any(stops):", "if False:"),
    Bug(
        "an action of a tool's own is allowed whatever policy says",
        "engine/tool_calls/execution.py",
        "consent.decision_of(event) if is_recorded",
        "msgspec.structs.replace(consent.decision_of(event), kind=DecisionKind.ALLOW) if is_recorded",
    ),
    Bug("the calls of one response may take for ever", "engine/scope.py", "return self.left == 0.0", "return False", first=2080),
    Bug(
        "a resume ignores its smaller budget", "budgets.py", "return self.calls_left(spent, wanted)", "return None"
    ),
    Bug(
        "agents as tools spend nothing of their caller's budget",
        "budgets.py",
        "            meter = above\n",
        "            meter = None\n",
        first=2890,
    ),
    Bug(
        "a request that allows no call does not keep the model from calling",
        "engine/tool_calls/refusals.py",
        "def forbidden_by(",
        "def forbidden_by(*_: object) -> None:\n    return None\n\n\ndef _forbidden_by(",
    ),
    Bug(
        "a call starts by a decision of the mode before",
        "engine/tool_calls/execution.py",
        "holds = partial(self._planner.stand, calls)",
        "holds = None",
        first=660,
    ),
    Bug(
        "a crash lifts an interrupt",
        "engine/tool_calls/execution.py",
        "if (interrupted := self._interrupted()) is not None:",
        "if False:",
        first=1170,
    ),
    Bug(
        "toolsets stay open",
        "engine/offering.py",
        "        if self._opened is None:\n            await asyncio.gather(*(self._close",
        "        if False:\n            await asyncio.gather(*(self._close",
    ),
    Bug(
        "a compaction parts calls from their results",
        "engine/model_calls/compacting.py",
        "if (fault := _fault_of(made, context.messages)) is not None:",
        "if (fault := None) is not None:",
        first=1820,
    ),
    Bug("an input is lost", "sessions/inbox.py", "value=message.value,", "value=None,"),
    Bug(
        "a policy's change of arguments is lost",
        "engine/tool_calls/checking.py",
        "changed = own.arguments if own.arguments is None or kept is None else kept",
        "changed = None",
    ),
    Bug(
        "a hook's denial of a response is not heeded",
        "engine/model_calls/proposal.py",
        "denied = await self._hooks.after_response(proposal.finished.message)",
        "denied = None",
        first=815,
    ),
    Bug("equal responses are told too early", "engine/rules/tries.py", "if same >= limit:", "if same >= limit - 1 and same > 1:"),
)  # fmt: skip


def hunt(bug: Bug, *, lives: int, folder: Path) -> str | None:
    """Put a bug into a copy of the sources; return the first broken promise, or None when none was found.

    Raises:
        LookupError: The line that the bug changes is not in the sources any more: give the bug a new one.
    """
    copy = folder / "src"
    shutil.copytree(TREADLE, copy / "treadle", ignore=shutil.ignore_patterns("*.pyc.*"))  # but files in the making
    file = copy / "treadle" / bug.file
    text = file.read_text()
    if bug.good not in text:
        raise LookupError(f"{bug.file} no longer has {bug.good!r}: the bug {bug.name!r} needs another line.")
    file.write_text(text.replace(bug.good, bug.bad))
    search = os.pathsep.join((str(copy), str(PROJECT / "tests")))
    found = subprocess.run(
        [sys.executable, "-m", "simulator", "--first", str(bug.first), "--lives", str(lives), "--stop"],
        env={**_plain_environment(), "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode not in (0, 1):
        raise RuntimeError(f"The simulator itself failed: {found.stderr[-2000:]}")
    lines = [line for line in found.stdout.splitlines() if line.startswith("VIOLATION")]
    return lines[0] if lines else None


def _plain_environment() -> dict[str, str]:
    """The environment without what measures coverage: it would make lives three times as long."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COV", "COVERAGE"))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=10_000, help="lives after which a bug counts as missed (10000)")
    options = parser.parse_args()
    missed = 0
    for bug in BUGS:
        with tempfile.TemporaryDirectory() as folder:
            found = hunt(bug, lives=options.lives, folder=Path(folder))
        missed += found is None
        print(f"{'MISSED' if found is None else 'found '}  {bug.name}: {found or ''}"[:220], flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
