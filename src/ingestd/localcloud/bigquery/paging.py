"""Page tokens: an offset, opaque to clients."""

import base64
from typing import Any

from ingestd.formats.errors import BigQueryError


def encode_token(offset: int) -> str:
    return base64.urlsafe_b64encode(f"o{offset}".encode()).decode().rstrip("=")


def decode_token(token: str | None) -> int:
    if not token:
        return 0
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        if text.startswith("o"):
            return int(text[1:])
    except ValueError:
        pass
    raise BigQueryError("invalid", f"Invalid page token: {token}")


def count(value: Any, default: int, maximum: int, name: str = "maxResults") -> int:
    """A page size from a query parameter."""
    if value in (None, ""):
        return default
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise BigQueryError("invalid", f"Invalid value for {name}: {value} is not a valid value")
    return min(number, maximum)


def page(items: list[dict[str, Any]], size: int, token: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """One page of a list and the token of the next, if there is one."""
    start = decode_token(token)
    following = start + size
    return items[start:following], encode_token(following) if following < len(items) else None
