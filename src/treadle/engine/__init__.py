"""The engine: carries out one run, from its first request to its end."""
