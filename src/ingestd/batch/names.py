"""Which names a finished record may have, in the few bytes that a listing carries.

A Bloom filter: a name that is in it is found, and of those that are not one in two hundred is mistaken for one (more
where names are thousands). So whoever looks for a file among many records lists them, and reads the one that has it.
"""

from base64 import b64decode, b64encode
from collections.abc import Collection
from hashlib import blake2b

from ingestd.model.objects import ObjectRef

MOST = 5000  # names that it tells something about
_LARGEST = 2250  # bytes, so 3,000 characters of the 8 KiB that all metadata of an object may have
_BITS = 12  # per name
_PLACES = 5


def name_filter(refs: Collection[ObjectRef]) -> str:
    size = min(_LARGEST, max(8, len(refs) * _BITS // 8))
    bits = bytearray(size)
    for ref in refs:
        at, step = _hashed(ref)
        for _ in range(_PLACES):
            place = at % (size * 8)
            bits[place >> 3] |= 1 << (place & 7)
            at += step
    return b64encode(bits).decode()


def may_have(names: str, ref: ObjectRef) -> bool:
    """Whether the name may be among those the filter was made of; one that cannot be read excludes nothing."""
    try:
        bits = b64decode(names, validate=True)
    except ValueError:
        return True
    if not bits:
        return True
    first, step = _hashed(ref)
    places = ((first + step * number) % (len(bits) * 8) for number in range(_PLACES))
    return all(bits[place >> 3] >> (place & 7) & 1 for place in places)


def _hashed(ref: ObjectRef) -> tuple[int, int]:
    """Where a name's first bit is, and how far it is to the next, each time."""
    hashed = blake2b(f"{ref.bucket}/{ref.name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(hashed[:8], "big"), int.from_bytes(hashed[8:], "big") | 1
