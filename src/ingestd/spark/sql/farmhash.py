"""FARM_FINGERPRINT, which Spark has no function for: FarmHash's Fingerprint64, in Python, on Spark's workers.

It is the one function of rule expressions that is not Spark SQL. Whoever runs an expression that uses it registers it
first (`register`); a lambda cannot call it.
"""

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "ingestd_farm_fingerprint"
_MASK = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def register(session: "SparkSession") -> None:
    session.udf.register(NAME, fingerprint, "bigint")


def fingerprint(data: bytes | bytearray | None) -> int | None:
    """The fingerprint as a signed 64-bit integer."""
    if data is None:
        return None
    value = _hash(bytes(data))
    return value - 2**64 if value >= 2**63 else value


def _word(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])


def _half(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _rotate(value: int, shift: int) -> int:
    return ((value >> shift) | (value << (64 - shift))) & _MASK


def _mix(value: int) -> int:
    return value ^ (value >> 47)


def _join(u: int, v: int, multiplier: int) -> int:
    a = _mix(((u ^ v) * multiplier) & _MASK)
    return (_mix(((v ^ a) * multiplier) & _MASK) * multiplier) & _MASK


def _hash(data: bytes) -> int:
    size = len(data)
    if size <= 16:
        return _to_16(data)
    if size <= 32:
        return _to_32(data)
    return _to_64(data) if size <= 64 else _longer(data)


def _to_16(data: bytes) -> int:
    size = len(data)
    if size >= 8:
        multiplier = _K2 + size * 2
        a, b = (_word(data, 0) + _K2) & _MASK, _word(data, size - 8)
        c = (_rotate(b, 37) * multiplier + a) & _MASK
        d = ((_rotate(a, 25) + b) * multiplier) & _MASK
        return _join(c, d, multiplier)
    if size >= 4:
        return _join(size + (_half(data, 0) << 3), _half(data, size - 4), _K2 + size * 2)
    if size:
        y = data[0] + (data[size >> 1] << 8)
        z = size + (data[-1] << 2)
        return (_mix((y * _K2 ^ z * _K0) & _MASK) * _K2) & _MASK
    return _K2


def _to_32(data: bytes) -> int:
    size = len(data)
    multiplier = _K2 + size * 2
    a, b = (_word(data, 0) * _K1) & _MASK, _word(data, 8)
    c, d = (_word(data, size - 8) * multiplier) & _MASK, (_word(data, size - 16) * _K2) & _MASK
    first = (_rotate((a + b) & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    return _join(first, (a + _rotate((b + _K2) & _MASK, 18) + c) & _MASK, multiplier)


def _to_64(data: bytes) -> int:
    size = len(data)
    multiplier = _K2 + size * 2
    a, b = (_word(data, 0) * _K2) & _MASK, _word(data, 8)
    c, d = (_word(data, size - 8) * multiplier) & _MASK, (_word(data, size - 16) * _K2) & _MASK
    y = (_rotate((a + b) & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    z = _join(y, (a + _rotate((b + _K2) & _MASK, 18) + c) & _MASK, multiplier)
    e, f = (_word(data, 16) * multiplier) & _MASK, _word(data, 24)
    g, h = ((y + _word(data, size - 32)) * multiplier) & _MASK, ((z + _word(data, size - 24)) * multiplier) & _MASK
    first = (_rotate((e + f) & _MASK, 43) + _rotate(g, 30) + h) & _MASK
    return _join(first, (e + _rotate((f + a) & _MASK, 18) + g) & _MASK, multiplier)


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = struct.unpack_from("<4Q", data, at)
    a = (a + w) & _MASK
    b = _rotate((b + a + z) & _MASK, 21)
    c = a
    a = (a + x + y) & _MASK
    b = (b + _rotate(a, 44)) & _MASK
    return (a + z) & _MASK, (b + c) & _MASK


def _longer(data: bytes) -> int:
    size, seed = len(data), 81
    x = seed
    y = (seed * _K1 + 113) & _MASK
    z = (_mix((y * _K2 + 113) & _MASK) * _K2) & _MASK
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _word(data, 0)) & _MASK
    end = ((size - 1) // 64) * 64
    last = size - 64
    for at in range(0, end, 64):
        x = (_rotate((x + y + v[0] + _word(data, at + 8)) & _MASK, 37) * _K1) & _MASK
        y = (_rotate((y + v[1] + _word(data, at + 48)) & _MASK, 42) * _K1) & _MASK
        x ^= w[1]
        y = (y + v[0] + _word(data, at + 40)) & _MASK
        z = (_rotate((z + w[0]) & _MASK, 33) * _K1) & _MASK
        v = _weak(data, at, (v[1] * _K1) & _MASK, (x + w[0]) & _MASK)
        w = _weak(data, at + 32, (z + w[1]) & _MASK, (y + _word(data, at + 16)) & _MASK)
        z, x = x, z
    multiplier = (_K1 + ((z & 0xFF) << 1)) & _MASK
    w = ((w[0] + ((size - 1) & 63)) & _MASK, w[1])
    v = ((v[0] + w[0]) & _MASK, v[1])
    w = ((w[0] + v[0]) & _MASK, w[1])
    x = (_rotate((x + y + v[0] + _word(data, last + 8)) & _MASK, 37) * multiplier) & _MASK
    y = (_rotate((y + v[1] + _word(data, last + 48)) & _MASK, 42) * multiplier) & _MASK
    x ^= (w[1] * 9) & _MASK
    y = (y + v[0] * 9 + _word(data, last + 40)) & _MASK
    z = (_rotate((z + w[0]) & _MASK, 33) * multiplier) & _MASK
    v = _weak(data, last, (v[1] * multiplier) & _MASK, (x + w[0]) & _MASK)
    w = _weak(data, last + 32, (z + w[1]) & _MASK, (y + _word(data, last + 16)) & _MASK)
    z, x = x, z
    first = (_join(v[0], w[0], multiplier) + _mix(y) * _K0 + z) & _MASK
    return _join(first, (_join(v[1], w[1], multiplier) + x) & _MASK, multiplier)
