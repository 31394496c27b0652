"""The worker as a command of the site: python manage.py run_agents. SIGTERM ends it; other workers take over what is under way."""

import asyncio
import os
import signal

from django.conf import settings
from django.core.management.base import BaseCommand

from treadle import Agent, Worker, tool


@tool(effect="unsafe")
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"{euros} euros for {order}"


async def work() -> None:
    worker = Worker(settings.JOURNAL, [Agent(os.environ["MODEL"], name="desk", tools=[refund])])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


class Command(BaseCommand):
    help = "Run tickets until SIGTERM."

    def handle(self, *args: object, **options: object) -> None:
        asyncio.run(work())
