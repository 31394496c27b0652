"""`treadle sessions to-test`: a session becomes a pytest file, which passes, and fails once the agent has changed."""

from typing import Any

import pytest

import program

SHOP = '''
from treadle import Agent, Rejected, ToolError, ask, deny, first_of, allow, tool
from treadle.testing import ScriptedModel, call, text

@tool(effect="read")
def look(order: int, note: str = "") -> dict:
    """Look at an order."""
    if order == 2:
        raise ToolError("no such order")
    return {"order": order, "paid": False}

@tool(effect="unsafe")
def pay(order: int) -> str:
    """Pay an order."""
    open("paid.txt", "a").write(f"{order}\\n")
    return "paid"

def make():
    return Agent(
        ScriptedModel([
            [text("I look."), call("look", order=1, note=SECRET), call("look", order=2)],
            call("look", order="many"),
            call("pay", order=1),
            call("pay", order=9),
            text("Order 1 is paid."),
        ]),
        tools=[look, pay],
        policy=first_of(deny("pay(order=9)", "not this one"), allow("pay")),
    )

SECRET = "sk-" + "a" * 48
'''


RECORD = """
import asyncio, shop
from treadle import open_session

async def main():
    async with open_session("s.db", id="s1") as session:
        await shop.make().run("Pay order 1, please.", session=session)

asyncio.run(main())
"""


@pytest.fixture
def recorded(treadle: Any) -> Any:
    """With a session in which calls have succeeded, failed, been invalid and been denied."""
    (treadle.folder / "shop.py").write_text(SHOP)
    _python(treadle, RECORD)
    return treadle


def _python(treadle: Any, text: str, code: int = 0) -> str:
    done = program.run((program.CODE, text), folder=treadle.folder, environment=treadle.environment)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout.decode()


def _pytest(treadle: Any, *files: str, code: int) -> str:
    options = ["-q", "-p", "no:cacheprovider", *files]
    return _python(treadle, f"import sys, pytest; sys.exit(pytest.main({options!r}))", code)


def test_a_session_becomes_a_test_that_passes_and_runs_no_tool(recorded: Any) -> None:
    recorded("sessions", "to-test", "s1", "test_pay.py", "--journal", "s.db", code=0)

    page = (recorded.folder / "test_pay.py").read_text()
    assert "def test_pay_order_1_please():" in page
    assert "aaaaaaaa" not in page
    assert "('pay', {'order': 9}, 'denied')" in page
    _pytest(recorded, "test_pay.py", code=0)
    assert (recorded.folder / "paid.txt").read_text() == "1\n"


def test_with_an_agent_the_test_holds_its_rules_and_the_schemas_of_its_tools(recorded: Any) -> None:
    recorded("sessions", "to-test", "--last", "test_pay.py", "--journal", "s.db", "--agent", "shop:make", code=0)
    _pytest(recorded, "test_pay.py", code=0)

    shop = recorded.folder / "shop.py"
    shop.write_text(SHOP.replace('deny("pay(order=9)", "not this one"), ', ""))

    assert "('pay', {'order': 9}, 'denied')" in _pytest(recorded, "test_pay.py", code=1)
    assert (recorded.folder / "paid.txt").read_text() == "1\n"


def test_the_agent_of_a_test_may_have_any_name(recorded: Any) -> None:
    names = ["agent", "model", "tools", "played", "call", "RESULTS"]
    for name in names:
        (recorded.folder / f"shop_{name}.py").write_text(f"{SHOP}\nmade = make()\n{name} = made\n")
        about = f"test_{name}.py", "--journal", "s.db", "--agent", f"shop_{name}:{name}"
        recorded("sessions", "to-test", "s1", *about, code=0)

    _pytest(recorded, *(f"test_{name}.py" for name in names), code=0)


def test_what_cannot_become_a_test_is_refused_with_the_reason(recorded: Any) -> None:
    refusing = recorded.script("refusing.json", [{"status": 401, "error": "The key is wrong."}])
    recorded("run", "-m", refusing, "hello", "--session", "broken", "--journal", "s.db")

    assert (
        "Only a run that has completed" in recorded("sessions", "to-test", "broken", "--journal", "s.db", code=2).stderr
    )
    assert (
        "name module:attr"
        in recorded("sessions", "to-test", "s1", "--agent", "shop.py", "--journal", "s.db", code=2).stderr
    )
    refused = recorded("sessions", "to-test", "s1", "shop.py", "--journal", "s.db", code=2)
    assert "'shop.py' cannot be created: File exists. Name a file that does not exist yet." in refused.stderr
