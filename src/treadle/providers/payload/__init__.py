"""Payload: what the dialects share about the content of requests and responses."""
