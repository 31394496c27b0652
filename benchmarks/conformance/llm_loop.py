"""llm in the conformance suite, by its Python interface. Its log of conversations is for reading, so nothing continues here."""

import os
import tempfile
from importlib.metadata import version
from typing import Any

os.environ.setdefault("LLM_USER_PATH", tempfile.gettempdir())
from llm.default_plugins.openai_models import AsyncChat
from warm import prepare


async def adapter(job: Any) -> dict[str, Any]:
    model = AsyncChat(job.model, model_name=job.model, api_base=job.base_url, supports_tools=True)
    model.key = job.api_key
    chain = model.conversation().chain(
        job.prompt,
        system=job.system,
        tools=[one.async_function for one in job.tools],
        chain_limit=job.max_steps + 1,  # it counts the answer as well
    )
    responses = []
    async for one in chain.responses():
        await one.text()
        responses.append(one)
    used = [await one.usage() for one in responses]
    return {
        "answer": await responses[-1].text(),
        "usage": {
            "input_tokens": sum(one.input or 0 for one in used),
            "output_tokens": sum(one.output or 0 for one in used),
        },
    }


adapter.name = "llm"
adapter.version = version("llm")
adapter.offers = ("chat", "stream", "max_steps", "usage")
adapter.prepare = lambda: prepare(adapter)
