"""The demo model as a Model: its brain behind the mock provider, spoken to over real HTTP. Needs no key and no network.

Adapters do not know one another, but for this one: it is made of two, a server and its client, so that in a demonstration
all but the model is real.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from treadle.budgets import Price
from treadle.concurrency.forks import bury, watch
from treadle.mock.demo.brain import brain
from treadle.mock.server.server import MockProvider
from treadle.ports import ModelPart, ModelRequest
from treadle.providers.openai_chat import OpenAIChat

__all__ = ["DemoModel"]


class DemoModel:
    """A rule-based model that looks into files with grep, glob, read and list, and says that it is not a language model.

    Its server starts on loopback with the first request of an event loop, and ends with that loop.

    Example:
        agent = Agent(DemoModel(), tools=file_tools("."))
    """

    def __init__(self) -> None:
        self._servers: dict[asyncio.AbstractEventLoop, _Server] = {}
        watch(self)

    def after_fork(self) -> None:
        """The servers are the parent's."""
        bury(self._servers)
        self._servers = {}

    @property
    def name(self) -> str:
        """Always `demo`."""
        return "demo"

    @property
    def price(self) -> Price:
        """Nothing."""
        return Price(input=0, output=0)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Send one request to the demo server and yield the parts of the one response, `ModelEnd` last.

        Raises:
            ModelError: The call failed.
        """
        client = await self._server().client()
        parts = client.stream(request)
        try:
            async for part in parts:
                yield part
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()

    def _server(self) -> "_Server":
        """Return the server of the running loop; forget those whose loops are closed."""
        self._servers = {loop: server for loop, server in self._servers.items() if not loop.is_closed()}
        return self._servers.setdefault(asyncio.get_running_loop(), _Server())


class _Server:
    """The demo server of one event loop, and its client."""

    def __init__(self) -> None:
        self._client: OpenAIChat | None = None
        self._starting = asyncio.Lock()
        self._running: AsyncGenerator[str, None] | None = None
        """Held, because the server ends when it is let go."""

    async def client(self) -> OpenAIChat:
        """Return the client; start the server first, if this is the first to ask."""
        async with self._starting:
            if self._client is None:
                self._running = _serve()  # anew after a start that failed or was cancelled
                self._client = OpenAIChat("demo", base_url=await anext(self._running), api_key=None)
            return self._client


async def _serve() -> AsyncGenerator[str, None]:
    """Run the server while this generator is held. `asyncio.run` closes what generators are open when it ends."""
    async with MockProvider(brain) as provider:
        yield provider.base_url
