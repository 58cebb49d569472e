"""The Avro container: header, blocks and their codecs, taken apart and put together.

fastavro decodes the rows; the container is handled here so that every codec BigQuery knows works without more packages
(Arrow brings Snappy and Zstandard) and so that a file's schema can be edited before its rows are decoded.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"Obj\x01"


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
    def parse(cls, data: bytes) -> "Container":
        if not data.startswith(MAGIC):
            raise BrokenAvroError("Invalid data file. Magic does not match")
        try:
            metadata, at = _metadata(data, len(MAGIC))
            sync, at = data[at : at + 16], at + 16
            if len(sync) < 16:
                raise BrokenAvroError("Invalid data file. The header is cut short")
            codec = metadata.get("avro.codec", b"null").decode()
            blocks = tuple(_blocks(data, at, sync, codec))
        except (IndexError, UnicodeDecodeError):
            raise BrokenAvroError("Invalid data file. The file is cut short") from None
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


def _blocks(data: bytes, at: int, sync: bytes, codec: str) -> Iterator[Block]:
    while at < len(data):
        rows, at = _long(data, at)
        packed, at = _bytes(data, at)
        if data[at : at + 16] != sync:
            raise BrokenAvroError("Invalid sync marker, the file is corrupt")
        at += 16
        yield Block(rows, _decompress(packed, codec))


def _decompress(data: bytes, codec: str) -> bytes:
    try:
        match codec:
            case "null":
                return data
            case "deflate":
                return zlib.decompress(data, wbits=-15)
            case "snappy":
                plain = _unsnappy(data[:-4])
                if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
                    raise BrokenAvroError("Checksum of a Snappy block does not match")
                return plain
            case "zstandard":
                import pyarrow as pa

                with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                    return bytes(stream.read())
    except (zlib.error, OSError, ValueError) as error:
        raise BrokenAvroError(f"Cannot decompress a {codec} block: {error}") from None
    raise BrokenAvroError(f"Unknown codec {codec}")


def _unsnappy(data: bytes) -> bytes:
    import pyarrow as pa

    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
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
