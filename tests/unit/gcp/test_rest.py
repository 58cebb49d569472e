"""Objects without the client around them: whole, as they are stored, and checked."""

import base64
import gzip
import io
from typing import Any, cast

import google_crc32c
import pytest
import requests
import urllib3
from google.api_core import exceptions as api

from ingestd.gcp.rest import Rest
from ingestd.model.errors import Transient

DATA = gzip.compress(b"rows")


def checksum(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


class Service:
    """Answers with these bytes and headers, and remembers what it was asked."""

    def __init__(self, data: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.data, self.headers, self.status = data, headers, status
        self.asked: dict[str, Any] = {}

    def request(self, method: str, url: str, **asked: Any) -> requests.Response:
        self.asked = {"method": method, "url": url, **asked}
        response = requests.Response()
        response.status_code, response.url = self.status, url
        response.request = requests.Request(method, url).prepare()
        response.headers.update(self.headers)
        response.raw = urllib3.HTTPResponse(io.BytesIO(self.data), self.headers, self.status, preload_content=False)
        return response


def rest(service: Service) -> Rest:
    return Rest(cast("requests.Session", service), timeout=1)


def test_bytes_come_as_they_are_stored_even_when_they_say_that_they_are_packed() -> None:
    told = {"Content-Encoding": "gzip", "X-Goog-Hash": f"md5=x, crc32c={checksum(DATA)}"}
    service = Service(DATA, told)
    data, headers = rest(service).media("http://x/o?alt=media")
    assert data == DATA
    assert headers["content-encoding"] == "gzip"
    assert service.asked["headers"] == {"Accept-Encoding": "gzip"}


def test_a_whole_object_with_another_checksum_is_asked_for_again() -> None:
    told = {"X-Goog-Hash": f"crc32c={checksum(b'others')},md5=x"}
    with pytest.raises(Transient, match="another checksum"):
        rest(Service(DATA, told)).media("http://x/o?alt=media")
    service = Service(DATA[2:5], told)
    assert rest(service).media("http://x/o", span="2-4")[0] == DATA[2:5]  # the checksum is that of the whole
    assert service.asked["headers"]["Range"] == "bytes=2-4"


def test_an_object_that_is_cut_short_is_none() -> None:
    with pytest.raises(Transient, match="3 bytes came"):
        rest(Service(DATA[:3], {"Content-Length": str(len(DATA))})).media("http://x/o")


def test_a_refusal_is_the_clients_own_error() -> None:
    with pytest.raises(api.NotFound, match="gone"):
        rest(Service(b'{"error": {"message": "gone"}}', {}, status=404)).media("http://x/o")
