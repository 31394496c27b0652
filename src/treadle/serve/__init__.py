"""Serve: agents for other programs: for MCP clients, for editors that speak ACP, and for web pages that speak AG-UI. Knows no terminal and no configuration.

Each name loads on first use: the packages of the protocols are extras.
"""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

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

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "acp": "Editor serve_acp",
        "ag_ui": "serve_ag_ui",
        "mcp_http": "Address serve_mcp_http",
        "mcp_service": "Offer service_tools",
        "wire": "Wire serve_mcp standard_wire",
        "work": "Setup",
    },
    extras={"acp": "acp", "ag_ui": "ag-ui", "mcp_http": "mcp", "mcp_service": "mcp", "wire": "mcp"},
)
