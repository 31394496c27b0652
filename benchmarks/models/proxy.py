"""A recording proxy: hands each request on to the model's server with the same sampling for all, and keeps it with its answer."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web

__all__ = ["Proxy"]


class Proxy:
    """One proxy on loopback. A request's path says who asks, and for which task: `/PEER/TASK/v1/...`.

    Args:
        server: The base URL of the model's server.
        options: Fields that every request is given.
        folder: Where each request and answer is written, a file for each task of each peer; None for nowhere.
    """

    def __init__(self, server: str, options: Mapping[str, Any], *, folder: Path | None = None) -> None:
        self._server = server.rstrip("/")
        self.options = dict(options)
        self.address = ""
        self._folder = folder
        self._exchanges: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self._counted: defaultdict[tuple[str, str], int] = defaultdict(int)

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{peer}/{task}/v1/{rest:.*}", self._pass_on)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
        await self._runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.Response:
        url = f"{self._server}/{request.match_info['rest']}"
        if request.method == "GET":
            async with self._client.get(url) as answer:
                return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")
        body = await request.json()
        sent = {**body, **self.options}
        sent.pop("max_completion_tokens", None)
        async with self._client.post(url, json=sent) as answer:
            text, status = await answer.text(), answer.status
        exchange = {"request": body, "status": status, "answer": json.loads(text)}
        self._keep(request.match_info["peer"], request.match_info["task"], exchange)
        return web.Response(text=text, status=status, content_type="application/json")

    def _keep(self, peer: str, task: str, exchange: Mapping[str, Any]) -> None:
        exchanges = self._exchanges[peer, task]
        exchanges.append(dict(exchange))
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(exchanges, indent=1, ensure_ascii=False)
            (self._folder / f"{peer}.{task}.json").write_text(text + "\n", encoding="utf-8")

    def asked(self, peer: str, task: str) -> dict[str, int]:
        """Return the requests and tokens of a task since this was last asked."""
        of = (peer, task)
        new = self._exchanges[of][self._counted[of] :]
        self._counted[of] += len(new)
        usage = [one["answer"].get("usage", {}) for one in new]
        return {
            "requests": len(new),
            "input_tokens": sum(one.get("prompt_tokens", 0) for one in usage),
            "output_tokens": sum(one.get("completion_tokens", 0) for one in usage),
        }

    async def model(self) -> str:
        """Return what the server calls its model."""
        async with self._client.get(f"{self._server}/models") as answer:
            return Path((await answer.json())["data"][0]["id"]).name
