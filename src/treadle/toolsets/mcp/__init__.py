"""MCP: tools of servers that speak the Model Context Protocol, as a toolset. The protocol's package is imported on first use."""
