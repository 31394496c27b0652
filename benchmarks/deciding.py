"""How long it takes to decide on one call, with a thousand rules: `python benchmarks/deciding.py`. Exits 1 where a limit is missed.

The limits are 0.1 ms for other tools and 1 ms for commands (issue GUARD). Each number is the median of many decisions by a policy that has been used
before; lines of shell are new each time, so that nothing of their analysis is remembered. What the arguments name is resolved beforehand, as a
run does when it checks a call.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from treadle import Effect, Tool, ToolCall, file_tools, shell_tool
from treadle.permissions import RuleSet, scoped
from treadle.permissions.lines import resolved
from treadle.permissions.policies import decide
from treadle.sessions.session import Session
from treadle.tools import CheckedCall
from treadle.toolsets import writing_tools

RULES = 1000
OTHER_MS, COMMAND_MS = 0.1, 1.0
ROUNDS = 300


def checked(tool: Tool, **arguments: object) -> CheckedCall:
    call = ToolCall(id="c", name=tool.name, arguments="{}")
    effect = tool.effect_of(dict(arguments))
    return CheckedCall(
        call=call,
        tool=tool,
        arguments=dict(arguments),
        values=dict(arguments),
        effect=effect,
        position=0,
        digest="",
        key="",
        subjects=resolved(tool, dict(arguments)),
    )


def plain(name: str) -> Tool:
    async def run(arguments: object, ctx: object) -> None: ...

    return Tool(name=name, description="", parameters={"type": "object"}, effect=Effect.UNSAFE, run=run)


async def median_ms(policy: object, call: object, session: Session) -> float:
    taken = []
    for _ in range(ROUNDS):
        one = call()
        start = time.perf_counter()
        await decide(policy, one, session)
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


async def main() -> int:
    folder = Path(tempfile.mkdtemp())
    (folder / "src").mkdir()
    (folder / "src" / "a.py").write_text("x")
    for n in range(RULES // 2):
        (folder / "data" / str(n % 10)).mkdir(parents=True, exist_ok=True)
        (folder / "data" / str(n % 10) / f"{n}.key").write_text("x")
    tools = {tool.name: tool for tool in (*file_tools(folder), *writing_tools(folder), shell_tool(folder))}
    numbers = count()
    third = RULES // 3
    sets = {
        "rules on tools": [
            RuleSet(scope="user", allow=[f"tool_{n}" for n in range(third)], ask=[f"ask_{n}" for n in range(third)]),
            RuleSet(scope="managed", deny=[f"deny_{n}" for n in range(RULES - 2 * third)]),
        ],
        "rules on arguments": [RuleSet(scope="user", allow=[f"pay(account=a{n}-*)" for n in range(RULES)])],
        "rules on paths": [
            RuleSet(scope="user", allow=[f"write(src/m{n}/*)" for n in range(RULES // 2)]),
            RuleSet(scope="managed", deny=[f"read(path=secrets{n}/**)" for n in range(RULES // 2)]),
        ],
        "rules on names": [
            RuleSet(scope="user", allow=[f"write(src/m{n}/*)" for n in range(RULES // 2)]),
            RuleSet(scope="managed", deny=[f"read(path=**/secret{n}/*.pem)" for n in range(RULES // 2)]),
        ],
        "rules on files": [
            RuleSet(scope="user", ask=[f"read(path=data/{n % 10}/{n})" for n in range(RULES // 2)]),
            RuleSet(scope="managed", deny=[f"read(path=data/{n % 10}/{n}.key)" for n in range(RULES // 2)]),
        ],
        "rules on commands": [
            RuleSet(scope="user", allow=[f"shell(tool{n} run:*)" for n in range(RULES // 2)]),
            RuleSet(scope="managed", deny=[f"shell(bad{n}:*)" for n in range(RULES // 2)]),
        ],
    }
    calls = {
        "another tool": lambda: checked(plain("tool_5")),
        "pay": lambda: checked(plain("pay"), account=f"a999-{next(numbers)}"),
        "write": lambda: checked(tools["write"], path="src/a.py", content="x"),
        "read": lambda: checked(tools["read"], path="src/a.py"),
        "grep": lambda: checked(tools["grep"], pattern=str(next(numbers)), path="src"),
        "shell": lambda: checked(tools["shell"], command=f"git log -n {next(numbers)} && grep -n x src/a.py | head -3"),
    }
    missed = 0
    from treadle.resolve import memory_session

    session = await memory_session()
    for title, rules in sets.items():
        policy = scoped(*rules)
        for name, call in calls.items():
            limit = COMMAND_MS if name == "shell" else OTHER_MS
            took = await median_ms(policy, call, session)
            none = await median_ms(scoped(), call, session)
            own = took - none if name in ("read", "write", "grep") else took
            missed += own > limit
            print(
                f"{title:20} {name:14} {took:8.3f} ms  ({none:.3f} ms without rules)  limit {limit} ms{'  MISSED' if own > limit else ''}"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
