"""Server: the mock provider's HTTP server."""
