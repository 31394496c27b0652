"""MCP over standard input and output: frames of a wire to messages of the official package and back. Knows no tool."""

import asyncio

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.message import SessionMessage

from treadle.serve.mcp_service import McpService, Offer
from treadle.serve.wire import Wire

__all__ = ["serve_mcp"]

_INVALID_REQUEST = -32600


async def serve_mcp(offer: Offer, wire: Wire, *, version: str) -> None:
    """Serve one client until it leaves, and return when all that it had begun is recorded."""
    service = McpService(offer, version=version, has_ended=lambda: wire.has_ended)
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    options = service.server.create_initialization_options(NotificationOptions())

    async def feed() -> None:
        async with to_server:
            while (frame := await wire.receive()) is not None:
                try:
                    message = types.jsonrpc_message_adapter.validate_python(frame, by_name=False)
                except ValueError:
                    await wire.send(_refused(frame.get("id")))
                    continue
                await to_server.send(SessionMessage(message))

    async def drain() -> None:
        async with from_server:
            async for one in from_server:
                await wire.send(one.message.model_dump(by_alias=True, exclude_unset=True, mode="json"))

    feeding, draining = asyncio.create_task(feed()), asyncio.create_task(drain())
    try:
        await service.server.run(incoming, outgoing, options)
    finally:
        feeding.cancel()
        await service.finish()
        await asyncio.wait({feeding, draining})
        await wire.close()


def _refused(frame_id: object) -> dict[str, object]:
    known = frame_id if isinstance(frame_id, str | int) and not isinstance(frame_id, bool) else None
    error = {"code": _INVALID_REQUEST, "message": "This is not a JSON-RPC 2.0 message."}
    return {"jsonrpc": "2.0", "id": known, "error": error}
