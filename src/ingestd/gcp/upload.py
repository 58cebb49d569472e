"""An upload to Cloud Storage in one request: description and content, with a checksum for the service to prove."""

import uuid
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import google_crc32c
import orjson

from ingestd.model.objects import Generation


def upload_path(bucket: str, if_generation: Generation | None) -> str:
    asked = {"uploadType": "multipart", **({} if if_generation is None else {"ifGenerationMatch": if_generation})}
    return f"/upload/storage/v1/b/{quote(bucket, safe='')}/o?{urlencode(asked)}"


def upload_body(name: str, data: bytes, content_type: str, metadata: Mapping[str, str]) -> tuple[str, bytes]:
    """The body, and its own content type."""
    checksum = b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
    resource: dict[str, Any] = {"name": name, "contentType": content_type, "crc32c": checksum}
    if metadata:
        resource["metadata"] = dict(metadata)
    boundary = f"upload_{uuid.uuid4().hex}"
    head = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n".encode()
    middle = f"\r\n--{boundary}\r\nContent-Type: {content_type}\r\n\r\n".encode()
    body = b"".join((head, orjson.dumps(resource), middle, data, f"\r\n--{boundary}--".encode()))
    return f"multipart/related; boundary={boundary}", body
