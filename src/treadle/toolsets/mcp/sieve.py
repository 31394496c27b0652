"""Sieve: takes out of a server's list entries that are not tools of the protocol, so that the package does not refuse the whole list.

An entry with a slip in its schema, or in a field that a call does without, is corrected.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import methods
from mcp_types.jsonrpc import JSONRPCResponse
from pydantic import ValidationError

from treadle.validation.correcting import corrected

if TYPE_CHECKING:
    from types import TracebackType

    from mcp.client._transport import ReadStream, TransportStreams

__all__ = ["sifted"]


@asynccontextmanager
async def sifted(
    transport: "AbstractAsyncContextManager[TransportStreams]",
    *,
    version: Callable[[], str],
    on_broken: Callable[[str, str], None],
    on_corrected: Callable[[str, str], None],
) -> AsyncGenerator["TransportStreams"]:
    """Enter a transport whose lists of tools hold only what the package takes.

    Args:
        version: Returns the version of the protocol that is spoken.
        on_broken: Called with the name of each tool that is left out, and why.
        on_corrected: Called with the name of each tool that is not left out, and what was wrong with it.
    """
    async with transport as (received, sent):
        yield _Sieve(received, version, on_broken, on_corrected), sent


class _Sieve:
    """A stream of messages, as the package reads it."""

    def __init__(
        self,
        inside: "ReadStream[SessionMessage | Exception]",
        version: Callable[[], str],
        on_broken: Callable[[str, str], None],
        on_corrected: Callable[[str, str], None],
    ) -> None:
        self._inside = inside
        self._version = version
        self._on_broken = on_broken
        self._on_corrected = on_corrected

    async def receive(self) -> SessionMessage | Exception:
        return self._sifted(await self._inside.receive())

    async def aclose(self) -> None:
        await self._inside.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._sifted(await self._inside.__anext__())

    async def __aenter__(self) -> Self:
        await self._inside.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> bool | None:
        return await self._inside.__aexit__(kind, error, trace)

    def _sifted(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            tools = item.message.result.get("tools")
            if isinstance(tools, list) and self._problem(item.message.result, tools):
                sound = [self._sound(item.message.result, one) for one in tools]
                item.message.result["tools"] = [one for one in sound if one is not None]
        return item

    def _sound(self, page: dict[str, Any], tool: Any) -> Any:
        """Return a tool that the package takes; None where that cannot be made of this one."""
        problem = first = self._problem(page, [tool])
        seen: set[str] = set()
        while problem and isinstance(tool, dict) and (field := problem.partition(":")[0].partition(".")[0]) not in seen:
            seen.add(field)
            if field == "inputSchema" and isinstance(tool.get(field), dict | None):
                tool = {**tool, field: _of_object(corrected(tool.get(field) or {}))}
            elif field in tool and field not in ("inputSchema", "name"):  # a hint, or a contract that cannot be kept
                tool = {key: part for key, part in tool.items() if key != field}
            problem = self._problem(page, [tool])
        name = str(tool.get("name") if isinstance(tool, dict) else None)[:200]
        if first:
            if problem:
                self._on_broken(name, first)
            else:
                self._on_corrected(name, f"its entry in the server's list was corrected: {first}")
        return None if problem else tool

    def _problem(self, page: dict[str, Any], tools: list[Any]) -> str:
        """Return what is wrong with a page that holds these tools; empty where nothing is."""
        try:
            methods.validate_server_result("tools/list", self._version(), {**page, "tools": tools})
        except ValidationError as error:
            first = error.errors()[0]
            return f"{'.'.join(map(str, first['loc'][2:]))}: {first['msg']}"
        except (KeyError, ValueError, RecursionError):
            return ""
        return ""


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of arguments, which are an object, whether it says so or not."""
    kind = schema.get("type", "object")
    return {**schema, "type": "object"} if kind == "object" or "object" in kind else schema
