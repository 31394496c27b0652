"""A process that has run an agent forks, and its forks run the agent too: `python forking.py JOURNAL`. For test_forks.py."""

import asyncio
import multiprocessing
import os
import sys
import warnings

from treadle import Agent, open_journal, open_session, resolve_model, tool
from treadle.testing import ScriptedModel, call, text

JOURNAL = sys.argv[1]


@tool(effect="unsafe", permission="allow")
def pay(amount: int) -> str:
    """Pay, in a thread."""
    return f"paid {amount}"


def agent() -> Agent:
    return Agent(ScriptedModel([call("pay", amount=40), text("Paid.")] * 3), tools=[pay])


async def in_session(own: Agent, name: str) -> str:
    async with open_session(JOURNAL, id=name) as session:
        return (await own.run("Pay", session=session)).text


def child(own: Agent, demo: Agent, name: str) -> None:
    assert own.run_sync("Pay").text == "Paid."
    assert asyncio.run(in_session(own, name)) == "Paid."
    assert demo.run_sync("Hello").text


def main() -> None:
    warnings.simplefilter("ignore")  # Python 3.12 and later warn of forks beside threads: that is what is tested
    own, demo = agent(), Agent(resolve_model("demo"))
    assert own.run_sync("Pay").text == "Paid."
    assert demo.run_sync("Hello").text
    asyncio.run(in_session(own, "parent"))
    journal = asyncio.run(open_journal(JOURNAL))
    asyncio.run(journal.create("kept"))
    own_fork = os.fork()
    if own_fork == 0:
        child(agent(), demo, "child3")
        sys.exit(0)  # through all that is done at exit
    forking = multiprocessing.get_context("fork")
    workers = [forking.Process(target=child, args=(agent(), demo, f"child{number}")) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("children", [worker.exitcode for worker in workers], os.waitpid(own_fork, 0)[1])
    again = agent()
    assert again.run_sync("Pay").text == "Paid."
    assert demo.run_sync("Hello").text
    print("sessions", len(asyncio.run(journal.sessions())))
    asyncio.run(journal.close())


if __name__ == "__main__":
    main()
