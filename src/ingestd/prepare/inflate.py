"""Compressed files into bytes, told by their first bytes: gzip, bzip2, Zstandard.

A file that ends early or breaks in the middle raises; nothing is ever taken from a file that cannot be read to its end.
"""

import bz2
import io
import zlib
from collections.abc import Iterator
from typing import Any

GZIP, BZIP2, ZSTD = b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd"
_STEP = 1 << 20
_SUFFIXES = {".gz": GZIP, ".bz2": BZIP2, ".zst": ZSTD}
SUFFIXES = tuple(_SUFFIXES)


class CorruptError(Exception):
    """The compressed data is not what it claims to be."""


def compressed(data: bytes | memoryview) -> bool:
    head = bytes(data[:10])
    return head.startswith((GZIP, ZSTD)) or _is_bzip2(head)


def _is_bzip2(head: bytes) -> bool:
    """Three letters could be text; a block's mark (or that of an empty file) cannot."""
    return head.startswith(BZIP2) and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90")


def check_name(name: str, data: bytes | memoryview) -> None:
    """A name that promises compression which the content does not keep is a broken file."""
    if not name.endswith(SUFFIXES) or not len(data):
        return
    for suffix, magic in _SUFFIXES.items():
        kept = bytes(data[:4]).startswith(magic) and compressed(data)
        if name.endswith(suffix) and not kept:
            raise CorruptError(f"Failed to decompress {suffix[1:]} data: incorrect header check")


def inflated(name: str, data: bytes) -> bytes:
    """The whole content."""
    check_name(name, data)
    return b"".join(chunks(data)) if compressed(data) else data


def chunks(data: bytes) -> Iterator[bytes]:
    """The content of compressed data, in pieces of about a megabyte or more."""
    if data.startswith(GZIP):
        yield from _members("gzip", data, lambda: zlib.decompressobj(wbits=31), (zlib.error,))
    elif data.startswith(BZIP2):
        yield from _members("bzip2", data, bz2.BZ2Decompressor, (OSError, ValueError))
    else:
        yield from _zstd(data)


def _members(label: str, data: bytes, make: Any, failures: tuple[type[Exception], ...]) -> Iterator[bytes]:
    """Every member of the file; zeros after the last one are padding, as gzip(1) has it."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        member = make()
        while not member.eof:
            step = view[at : at + _STEP]
            if not step:
                raise CorruptError(f"Failed to decompress {label} data: unexpected end of the compressed data")
            try:
                out = member.decompress(step)
            except failures as error:
                raise CorruptError(f"Failed to decompress {label} data: {error}") from None
            at += len(step)
            if out:
                yield out
        at -= len(member.unused_data)
        while at < len(view) and view[at] == 0:
            at += 1


def _zstd(data: bytes) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(io.BytesIO(data), "zstd") as stream:
            while out := stream.read(_STEP):
                yield bytes(out)
    except OSError as error:
        raise CorruptError(f"Failed to decompress zstd data: {error}") from None


def lines(parts: Iterator[bytes], least: int) -> Iterator[bytes]:
    """The same bytes in pieces of at least that size, each ending before a newline that is left out."""
    held = bytearray()
    for part in parts:
        held += part
        if len(held) >= least and (end := held.rfind(b"\n")) >= 0:
            yield bytes(held[:end])
            del held[: end + 1]
    if held:
        yield bytes(held)
