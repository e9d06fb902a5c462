"""Compressed request bodies: unpacked up to a limit, on a worker thread, for a caller who was let in. Pure."""

from __future__ import annotations

import zlib

from aiohttp import web

from .errors import bad_request

_EITHER = zlib.MAX_WBITS | 32  # gzip or zlib, as the header says


def unpacked(raw: bytes, encoding: str, most: int) -> bytes:
    """What a body of this ``Content-Encoding`` (lower case) holds.

    Raises AguiError 400 for another encoding or for what is none, HTTPRequestEntityTooLarge beyond ``most`` bytes.
    """
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise bad_request("A body of this Content-Encoding is not read here; send it plain or by gzip.")
    unpacker = zlib.decompressobj(_EITHER)
    try:
        body = unpacker.decompress(raw, most + 1)
    except zlib.error:
        raise bad_request("The body is not what its headers say (length, encoding).") from None
    if len(body) > most:
        raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=len(body))
    if not unpacker.eof or unpacker.unused_data:
        raise bad_request("The body is not what its headers say (length, encoding).")
    return body
