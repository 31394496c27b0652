"""Serve: agents for other programs: for MCP clients, for editors that speak ACP, and for web pages that speak AG-UI. Knows no terminal and no configuration.

Each name loads on first use: the packages of the protocols are extras.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.serve.acp import Editor as Editor
    from treadle.serve.acp import serve_acp as serve_acp
    from treadle.serve.ag_ui import serve_ag_ui as serve_ag_ui
    from treadle.serve.mcp_http import Address as Address
    from treadle.serve.mcp_http import serve_mcp_http as serve_mcp_http
    from treadle.serve.mcp_service import Offer as Offer
    from treadle.serve.mcp_service import service_tools as service_tools
    from treadle.serve.wire import Wire as Wire
    from treadle.serve.wire import serve_mcp as serve_mcp
    from treadle.serve.wire import standard_wire as standard_wire
    from treadle.serve.work import Setup as Setup

_HOMES = {
    "Address": "mcp_http",
    "Editor": "acp",
    "Offer": "mcp_service",
    "Setup": "work",
    "Wire": "wire",
    "serve_acp": "acp",
    "serve_ag_ui": "ag_ui",
    "serve_mcp": "wire",
    "serve_mcp_http": "mcp_http",
    "service_tools": "mcp_service",
    "standard_wire": "wire",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, not two


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'treadle.serve' has no attribute {name!r}")
    return getattr(import_module(f"treadle.serve.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
