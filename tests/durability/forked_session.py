"""A process forks while it has a session open, and while it runs it: `python forked_session.py JOURNAL`. For test_forks.py."""

import os
import sys
import threading
import warnings
from collections.abc import Callable

from treadle import Agent, Session, open_session, sync, tool
from treadle.errors import SessionHeld
from treadle.testing import ScriptedModel, call, text

JOURNAL = sys.argv[1]
begun_read, begun = os.pipe()
go_on_read, go_on = os.pipe()


@tool(effect="unsafe", permission="allow")
def pay(amount: int) -> str:
    """Pay, once the fork has tried."""
    os.write(begun, b".")
    os.read(go_on_read, 1)
    return f"paid {amount}"


def forked(act: Callable[[], str]) -> str:
    """Return what a fork says of an act."""
    said_read, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(said, act().encode())
        except SessionHeld:
            os.write(said, b"held")
        os._exit(0)
    os.close(said)
    os.waitpid(child, 0)
    return os.read(said_read, 100).decode()


def run(session: Session, agent: Agent) -> str:
    return agent.run_sync("Pay", session=session).text


def main() -> None:
    warnings.simplefilter("ignore")  # Python 3.12 and later warn of forks beside threads: that is what is tested
    talks = Agent(ScriptedModel([text("Hi.")]))
    pays = Agent(ScriptedModel([call("pay", amount=1), text("Paid.")]), tools=[pay])
    with sync.opened(open_session(JOURNAL, id="shared")) as session:
        print(run(session, talks), forked(lambda: run(session, talks)), run(session, talks), len(session.messages))
        running = threading.Thread(target=run, args=(session, pays))
        running.start()
        os.read(begun_read, 1)
        print(forked(lambda: run(session, talks)), forked(lambda: str(session.state.run_status)))
        os.write(go_on, b".")
        running.join()
        print(session.state.run_status, session.messages[-1].text)


if __name__ == "__main__":
    main()
