"""Names that come from outside as parts of the names of our own objects.

Cloud Storage takes 1,024 bytes, and a table's name may have as many by itself, each of them written as three. So a
longer one is cut, and told apart by a digest. Names that always fitted are written as they always were: objects of
earlier versions are found.
"""

from hashlib import sha256
from urllib.parse import quote

MOST = 1024  # bytes that an object's name may have
LONGEST = 850  # of them; the rest is for folders, days, ids and the names of replicas
_DIGEST = 32


def cut(text: str) -> str:
    """The text, or its beginning and a digest: `~` is in no table's name."""
    data = text.encode()
    if len(data) <= LONGEST:
        return text
    return f"{data[: LONGEST - _DIGEST - 1].decode(errors='ignore')}~{sha256(data).hexdigest()[:_DIGEST]}"


def segment(table: str, safe: str = ".:$-_") -> str:
    """A table as one segment of a path, without a slash; its partition (`$…`) stays at the end, whatever is cut."""
    name, dollar, partition = table.partition("$")
    return cut(quote(name, safe=safe)) + quote(dollar + partition, safe=safe)
