"""Multipart bodies as Google's clients really write them: quoted boundaries of either kind, CRLF or bare LF."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ingestd.localcloud.storage.errors import invalid

_BOUNDARY = re.compile(r"boundary=(?:\"([^\"]+)\"|'([^']+)'|([^;\s]+))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    headers: dict[str, str]  # keys in lower case
    body: bytes


def boundary_of(content_type: str) -> bytes:
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise invalid("The multipart content type has no boundary.")
    return next(group for group in match.groups() if group).encode()


def parse_multipart(content_type: str, body: bytes) -> list[Part]:
    """The parts between the boundary lines; bytes of a part are taken exactly, whatever they contain."""
    delimiter = b"--" + boundary_of(content_type)
    position = 0 if body.startswith(delimiter) else body.find(b"\n" + delimiter) + 1
    if not body.startswith(delimiter, position):
        raise invalid("Missing start of a multipart body.")
    parts: list[Part] = []
    position += len(delimiter)
    while not body.startswith(b"--", position):
        line_end = body.find(b"\n", position)
        end = body.find(b"\n" + delimiter, line_end)
        if line_end < 0 or end < 0:
            raise invalid("Missing end boundary in multipart body.")
        content_end = end - 1 if body[end - 1 : end] == b"\r" and end - 1 > line_end else end
        parts.append(parse_part(body[line_end + 1 : content_end]))
        position = end + 1 + len(delimiter)
    return parts


def parse_part(data: bytes) -> Part:
    headers, content = split_head(data)
    return Part(headers, content)


def split_head(data: bytes) -> tuple[dict[str, str], bytes]:
    """Header lines up to the first empty line, and what follows it."""
    headers: dict[str, str] = {}
    position = 0
    while True:
        end = data.find(b"\n", position)
        line = data[position : end if end >= 0 else len(data)].rstrip(b"\r")
        position = end + 1 if end >= 0 else len(data)
        if not line:
            return headers, data[position:]
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
        if end < 0:
            return headers, b""


def render_multipart(boundary: str, parts: Iterable[Part]) -> bytes:
    out = bytearray()
    for part in parts:
        out += f"--{boundary}\r\n".encode()
        for name, value in part.headers.items():
            out += f"{name}: {value}\r\n".encode("latin-1")
        out += b"\r\n" + part.body + b"\r\n"
    out += f"--{boundary}--\r\n".encode()
    return bytes(out)
