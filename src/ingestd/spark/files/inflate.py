"""Compressed files into bytes, told by their first bytes: gzip, bzip2, Zstandard.

A file that ends early or breaks in the middle raises; nothing is ever taken from a file that cannot be read to its end.
What is inflated is bounded (`formats.inflation`) before it takes memory, not after.
"""

import bz2
import io
import zlib
from collections.abc import Iterator

from ingestd.formats.inflation import BOUND, Inflation, InflationError

GZIP, BZIP2, ZSTD = b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd"
_STEP = 1 << 20
_LONGEST_LINE = 100_000_000
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


def inflated(name: str, data: bytes, bound: Inflation = BOUND) -> bytes:
    """The whole content."""
    check_name(name, data)
    return b"".join(chunks(data, bound)) if compressed(data) else data


def inflated_if_small(name: str, data: bytes, most: int) -> bytes | None:
    """The whole content; None when it has more bytes than that."""
    check_name(name, data)
    if not compressed(data):
        return data if len(data) <= most else None
    found = bytearray()
    for chunk in chunks(data):
        found += chunk
        if len(found) > most:
            return None
    return bytes(found)


def chunks(data: bytes, bound: Inflation = BOUND) -> Iterator[bytes]:
    """The content of compressed data, in pieces of a megabyte at most: of a bomb, no more than the bound."""
    if data.startswith(GZIP):
        parts = _members("gzip", data, _Gzip, (zlib.error,))
    elif data.startswith(BZIP2):
        parts = _members("bzip2", data, _Bzip2, (OSError, ValueError))
    else:
        parts = _zstd(data)
    budget = bound.budget(len(data))
    try:
        for part in parts:
            budget.take(len(part))
            yield part
    except InflationError as error:
        raise CorruptError(f"Refused to decompress: {error}") from None


class _Gzip:
    """One member, a bounded piece at a time."""

    def __init__(self) -> None:
        self.member = zlib.decompressobj(wbits=31)

    @property
    def hungry(self) -> bool:
        return not self.member.unconsumed_tail

    def decompress(self, step: memoryview | bytes) -> bytes:
        return self.member.decompress(step or self.member.unconsumed_tail, _STEP)


class _Bzip2:
    def __init__(self) -> None:
        self.member = bz2.BZ2Decompressor()

    @property
    def hungry(self) -> bool:
        return self.member.needs_input

    def decompress(self, step: memoryview | bytes) -> bytes:
        return self.member.decompress(step, _STEP)


def _members(
    label: str, data: bytes, make: type[_Gzip] | type[_Bzip2], failures: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    """Every member of the file; zeros after the last one are padding, as gzip(1) has it."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        made = make()
        while not made.member.eof:
            hungry = made.hungry
            step: memoryview | bytes = view[at : at + _STEP] if hungry else b""
            try:
                out = made.decompress(step)
            except failures as error:
                raise CorruptError(f"Failed to decompress {label} data: {error}") from None
            at += len(step)
            if out:
                yield out
            elif hungry and not step and not made.member.eof:
                raise CorruptError(f"Failed to decompress {label} data: unexpected end of the compressed data")
        at -= len(made.member.unused_data)
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
        if len(held) > least + _LONGEST_LINE and held.rfind(b"\n") < 0:
            raise CorruptError(f"a line has more than {_LONGEST_LINE:,} bytes, and BigQuery takes no row of that size")
        if len(held) >= least and (end := held.rfind(b"\n")) >= 0:
            yield bytes(held[:end])
            del held[: end + 1]
    if held:
        yield bytes(held)
