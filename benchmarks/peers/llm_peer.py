"""llm, with a conversation for each run."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("LLM_USER_PATH", tempfile.gettempdir())
sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from llm.default_plugins.openai_models import AsyncChat


class Parts(NamedTuple):
    """What conversations are made of."""

    model: AsyncChat
    tool: Callable[..., Any]

    def chain(self, *, stream: bool) -> Any:
        conversation = self.model.conversation()
        return conversation.chain(
            harness.TASK, system=harness.INSTRUCTIONS, tools=[self.tool], chain_limit=0, stream=stream
        )


class Llm:
    """A conversation a run, over one model."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Parts:
        model = AsyncChat("mock", model_name="mock", api_base=base_url, supports_tools=True)
        model.key = "x"
        return Parts(model, tool)

    async def run(self, parts: Parts) -> str:
        return await parts.chain(stream=False).text()

    async def stream(self, parts: Parts, on_text: Callable[[str], None]) -> str:
        text = []
        async for piece in parts.chain(stream=True):
            on_text(piece)
            text.append(piece)
        return "".join(text)

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(Llm())
