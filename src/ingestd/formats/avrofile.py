"""The Avro container: header, blocks and their codecs, taken apart and put together.

fastavro decodes the rows; the container is handled here so that every codec BigQuery knows works without more packages
(Arrow brings Snappy and Zstandard) and so that a file's schema can be edited before its rows are decoded.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ingestd.formats.inflation import BOUND, Budget, Inflation, InflationError

MAGIC = b"Obj\x01"
_STEP = 1 << 20
_ROW_BYTES = 64  # an empty row as a Python object


class BrokenAvroError(Exception):
    """The bytes are not an Avro container."""


@dataclass(frozen=True, slots=True)
class Block:
    rows: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Container:
    """A file with its blocks decompressed."""

    metadata: dict[str, bytes]
    sync: bytes
    blocks: tuple[Block, ...]

    @classmethod
    def parse(cls, data: bytes, bound: Inflation = BOUND) -> "Container":
        if not data.startswith(MAGIC):
            raise BrokenAvroError("Invalid data file. Magic does not match")
        try:
            metadata, at = _metadata(data, len(MAGIC))
            sync, at = data[at : at + 16], at + 16
            if len(sync) < 16:
                raise BrokenAvroError("Invalid data file. The header is cut short")
            codec = metadata.get("avro.codec", b"null").decode()
            blocks = tuple(_blocks(data, at, sync, codec, bound.budget(len(data))))
        except (IndexError, UnicodeDecodeError):
            raise BrokenAvroError("Invalid data file. The file is cut short") from None
        except InflationError as error:
            raise BrokenAvroError(f"Refused to decompress: {error}") from None
        return cls(metadata, sync, blocks)

    def build(self, codec: str = "null") -> bytes:
        entries = {name: value for name, value in self.metadata.items() if name != "avro.codec"}
        entries["avro.codec"] = codec.encode()
        out = bytearray(MAGIC) + _varint(len(entries))
        for name, value in entries.items():
            key = name.encode()
            out += _varint(len(key)) + key + _varint(len(value)) + value
        out += b"\0" + self.sync
        for block in self.blocks:
            data = _compress(block.data, codec)
            out += _varint(block.rows) + _varint(len(data)) + data + self.sync
        return bytes(out)


def growth(head: bytes) -> float:
    """How much larger the first block is than what is stored of it; `head` are a file's first bytes."""
    if not head.startswith(MAGIC):
        raise BrokenAvroError("Invalid data file. Magic does not match")
    try:
        metadata, at = _metadata(head, len(MAGIC))
        codec = metadata.get("avro.codec", b"null").decode()
        if codec == "null":
            return 1.0
        _, at = _long(head, at + 16)
        packed, _ = _bytes(head, at)
        return len(_decompress(packed, codec, BOUND.budget(len(packed)))) / max(len(packed), 1)
    except (IndexError, UnicodeDecodeError, InflationError):
        raise BrokenAvroError("Invalid data file. The file is cut short") from None


def _metadata(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    entries: dict[str, bytes] = {}
    while True:
        count, at = _long(data, at)
        if count == 0:
            return entries, at
        if count < 0:
            count = -count
            _, at = _long(data, at)
        for _ in range(count):
            key, at = _bytes(data, at)
            entries[key.decode()], at = _bytes(data, at)


def _blocks(data: bytes, at: int, sync: bytes, codec: str, budget: Budget) -> Iterator[Block]:
    while at < len(data):
        rows, at = _long(data, at)
        packed, at = _bytes(data, at)
        if data[at : at + 16] != sync:
            raise BrokenAvroError("Invalid sync marker, the file is corrupt")
        at += 16
        plain = _decompress(packed, codec, budget)
        if rows > len(plain):
            budget.take(_ROW_BYTES * rows)  # rows without values take no bytes here, and memory once they are rows
        yield Block(rows, plain)


def _decompress(data: bytes, codec: str, budget: Budget) -> bytes:
    try:
        match codec:
            case "null":
                return data
            case "deflate":
                return _undeflate(data, budget)
            case "snappy":
                plain = _unsnappy(data[:-4], budget)
                if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
                    raise BrokenAvroError("Checksum of a Snappy block does not match")
                return plain
            case "zstandard":
                import pyarrow as pa

                out = []
                with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                    while part := stream.read(_STEP):
                        budget.take(len(part))
                        out.append(bytes(part))
                return b"".join(out)
    except (zlib.error, OSError, ValueError) as error:
        raise BrokenAvroError(f"Cannot decompress a {codec} block: {error}") from None
    raise BrokenAvroError(f"Unknown codec {codec}")


def _undeflate(data: bytes, budget: Budget) -> bytes:
    out = []
    inflate = zlib.decompressobj(wbits=-15)
    while not inflate.eof:
        out.append(inflate.decompress(data, _STEP))
        budget.take(len(out[-1]))
        data = inflate.unconsumed_tail
        if not out[-1] and not data and not inflate.eof:
            raise BrokenAvroError("Cannot decompress a deflate block: it is cut short")
    return b"".join(out)


def _unsnappy(data: bytes, budget: Budget) -> bytes:
    import pyarrow as pa

    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    budget.take(size)
    return bytes(pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True))


def _compress(data: bytes, codec: str) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        deflate = zlib.compressobj(wbits=-15)
        return deflate.compress(data) + deflate.flush()
    import pyarrow as pa

    if codec == "snappy":
        return bytes(pa.compress(data, codec="snappy", asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def _long(data: bytes, at: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0 or at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _varint(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
