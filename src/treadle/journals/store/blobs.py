"""Blobs: the digest by which bytes are kept. Stores nothing."""

import asyncio
import hashlib

__all__ = ["digest_of"]

_SLICE = 4 * 1024 * 1024
"""Bytes that are digested at once: some 10 ms."""


async def digest_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal. Gives others turns of the event loop while it works."""
    digest = hashlib.sha256(content[:_SLICE])
    for start in range(_SLICE, len(content), _SLICE):
        await asyncio.sleep(0)
        digest.update(memoryview(content)[start : start + _SLICE])
    return digest.hexdigest()
