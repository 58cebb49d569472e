"""Google's services without the clients around them: what goes over the wire, and what comes back, whole, checked."""

import asyncio
import base64
import gzip
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import google_crc32c
import orjson
import pytest
import requests
from google.api_core import exceptions as api
from google.auth import _helpers, compute_engine
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials, Credentials
from tests.support.answering import Asked, Said, answering
from tests.support.listening import deaf, dripping, listening

from ingestd.gcp.errors import translated
from ingestd.gcp.rest import Rest, Tokens, connections, download
from ingestd.gcp.threads import Threads
from ingestd.model.errors import Fatal, Throttled, Transient

DATA = gzip.compress(b"rows")


def checksum(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


class Service:
    """Answers with these bytes and headers, and remembers what it was asked."""

    def __init__(self) -> None:
        self.data, self.headers, self.status = b"{}", dict[str, str](), 200
        self.wanted = ""  # the one token that is taken; empty: any
        self.asked: list[tuple[str, str, Mapping[str, str], bytes]] = []
        self.url = ""

    def answers(self, data: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.data, self.headers, self.status = data, headers or {}, status


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service()

    def answer(asked: Asked) -> Said:
        one.asked.append((asked.method, asked.path, asked.headers, asked.body))
        refused = one.wanted and asked.headers.get("Authorization") != f"Bearer {one.wanted}"
        return 401 if refused else one.status, one.headers, one.data

    with answering(answer) as one.url:
        yield one


@asynccontextmanager
async def rest(credentials: Credentials | None = None, *, silence: float = 10, at_once: int = 4) -> AsyncIterator[Rest]:
    threads = Threads("auth", 2)
    try:
        async with connections(at_once, silence=silence) as session:
            yield Rest(session, Tokens(credentials or AnonymousCredentials(), threads))  # type: ignore[no-untyped-call]
    finally:
        await threads.close()


async def read(url: str) -> tuple[bytes, Any]:
    async with rest() as made:
        return await made.media(url)


async def fetched(url: str) -> tuple[bytes, Any]:
    with requests.Session() as session:
        return await asyncio.to_thread(download, session, url, timeout=10)


both = pytest.mark.parametrize("way", [read, fetched])


@both
async def test_bytes_come_as_they_are_stored_even_when_they_say_that_they_are_packed(
    service: Service, way: Any
) -> None:
    service.answers(DATA, {"Content-Encoding": "gzip", "X-Goog-Hash": f"md5=x, crc32c={checksum(DATA)}"})
    data, headers = await way(f"{service.url}/o?alt=media")
    assert data == DATA
    assert headers["content-encoding"] == "gzip"
    assert service.asked[0][2]["Accept-Encoding"] == "gzip"


@both
async def test_a_whole_object_with_another_checksum_is_asked_for_again(service: Service, way: Any) -> None:
    told = {"X-Goog-Hash": f"crc32c={checksum(b'others')},md5=x"}
    service.answers(DATA, told)
    with pytest.raises(Transient, match="another checksum"):
        await way(f"{service.url}/o?alt=media")
    service.answers(DATA[2:5], told)
    with requests.Session() as session:
        part = await asyncio.to_thread(download, session, f"{service.url}/o", span="2-4", timeout=10)
    assert part[0] == DATA[2:5]  # the checksum is that of the whole
    assert service.asked[-1][2]["Range"] == "bytes=2-4"


@both
async def test_an_object_that_is_cut_short_is_none(service: Service, way: Any) -> None:
    service.answers(DATA[:3], {"Content-Length": str(len(DATA))})
    with pytest.raises(Transient), translated("read", "gs://b/o"):
        await way(f"{service.url}/o")


@both
async def test_a_refusal_is_the_clients_own_error(service: Service, way: Any) -> None:
    service.answers(b'{"error": {"message": "gone"}}', status=404)
    with pytest.raises(api.NotFound, match="gone"):
        await way(f"{service.url}/o")


async def test_a_call_carries_its_method_path_and_body(service: Service) -> None:
    large = b"x" * 3_000_000
    async with rest() as made:
        assert await made.get(f"{service.url}/o/a%2Fb?x=1%2B2") == {}
        assert await made.post(f"{service.url}/jobs", b'{"a": 1}') == {}
        await made.post(f"{service.url}/upload", large, "multipart/related; boundary=x")
        await made.delete(f"{service.url}/o/a%20b")
    assert [(method, path) for method, path, _, _ in service.asked] == [
        ("GET", "/o/a%2Fb?x=1%2B2"),
        ("POST", "/jobs"),
        ("POST", "/upload"),
        ("DELETE", "/o/a%20b"),
    ]
    assert [body for *_, body in service.asked] == [b"", b'{"a": 1}', large, b""]
    assert service.asked[1][2]["Content-Type"] == "application/json"
    assert service.asked[2][2]["Content-Type"] == "multipart/related; boundary=x"


async def test_what_a_service_says_about_waiting_is_heard(service: Service) -> None:
    service.answers(
        b'{"error": {"message": "slow down", "errors": [{"reason": "rateLimitExceeded"}]}}', {"Retry-After": "7"}, 429
    )
    async with rest() as made:
        with pytest.raises(Throttled, match="slow down") as refused, translated("list", "gs://b"):
            await made.get(f"{service.url}/o")
    assert refused.value.until is not None


@pytest.mark.parametrize("said", [b'{"error": "unavailable"}', b'{"error": {"errors": null}}', b'"x"'])
async def test_a_stumble_is_one_whatever_is_said_of_it(service: Service, said: bytes) -> None:
    service.answers(said, status=503)
    async with rest() as made:
        with pytest.raises(Transient), translated("stat", "gs://b/o"):
            await made.get(f"{service.url}/o")


@pytest.mark.parametrize("said", [b"<html>", b"[]"])
async def test_an_answer_that_is_no_document_may_be_another_next_time(service: Service, said: bytes) -> None:
    service.answers(said)
    async with rest() as made:
        with pytest.raises(Transient, match="the answer is"):
            await made.get(f"{service.url}/o")


async def test_a_service_that_is_not_there_may_be_there_in_a_moment() -> None:
    async with rest() as made:
        with pytest.raises(Transient), translated("stat", "gs://b/o"):
            await made.get("http://127.0.0.1:9/o")


@pytest.mark.parametrize("size", [900_000, 8_000_000])
async def test_a_body_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("ingestd.gcp.rest._SLOWEST", 2**26, raising=False)
    async with listening(deaf) as port, rest(silence=0.2) as made, asyncio.timeout(30):
        with pytest.raises(Transient), translated("write", "gs://b/o"):
            await made.post(f"http://127.0.0.1:{port}/o", bytes(size), "text/plain")


async def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestd.gcp.rest._SLOWEST", 2**26, raising=False)
    endless = dripping(b"Content-Length: 1000000", b".")
    async with listening(endless) as port, rest(silence=0.4) as made, asyncio.timeout(30):
        with pytest.raises(Transient), translated("read", "gs://b/o"):
            await made.media(f"http://127.0.0.1:{port}/o")


async def test_the_wait_for_a_free_connection_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes a part of what it may; many of them, one after the other, take several times that."""
    monkeypatch.setattr("ingestd.gcp.rest._SLOWEST", 2**26, raising=False)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.05)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with listening(slow) as port, rest(silence=1, at_once=1) as made, asyncio.timeout(60):
        asked = (made.get(f"http://127.0.0.1:{port}/o") for _ in range(60))
        assert await asyncio.gather(*asked) == [{}] * 60


class Renewed(Credentials):
    """Its n-th token is `t<n>`."""

    def __init__(self, token: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = token
        self.times = 0

    def refresh(self, request: Any) -> None:
        self.times += 1
        self.token = f"t{self.times}"


async def test_a_token_is_asked_for_once_by_all_calls_that_need_it(service: Service) -> None:
    credentials = Renewed()
    async with rest(credentials) as made:
        await asyncio.gather(*(made.get(f"{service.url}/o") for _ in range(5)))
    assert credentials.times == 1
    assert {headers["Authorization"] for _, _, headers, _ in service.asked} == {"Bearer t1"}


async def test_a_token_that_is_refused_is_replaced_once(service: Service) -> None:
    credentials = Renewed("taken back")
    service.wanted = "t1"
    async with rest(credentials) as made:
        assert await made.get(f"{service.url}/o") == {}
        assert [headers["Authorization"] for _, _, headers, _ in service.asked] == ["Bearer taken back", "Bearer t1"]
        service.wanted = "nobody's"
        with pytest.raises(api.Unauthorized):
            await made.get(f"{service.url}/o")
    assert credentials.times == 2


class MetadataServer:
    """Issues tokens for a service account, unless it is away: it answers as it is told then, or not at all."""

    def __init__(self) -> None:
        self.away = 0  # the status it answers with instead; -1: it cuts the connection
        self.asked = 0


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    one = MetadataServer()

    def answer(asked: Asked) -> Said | None:
        one.asked += 1
        token = {"access_token": "t1", "expires_in": 3600}
        said = token if "/token" in asked.path else {"email": "a@b", "scopes": [], "aliases": []}
        headers = {"Content-Type": "application/json", "Metadata-Flavor": "Google"}
        return None if one.away < 0 else (one.away or 200, headers, orjson.dumps(said))

    with answering(answer) as url:
        monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", url.removeprefix("http://"))
        monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _seconds: None)
        yield one


@pytest.mark.parametrize("away", [-1, 503])
async def test_a_metadata_server_may_be_back_in_a_moment(service: Service, metadata: MetadataServer, away: int) -> None:
    credentials = compute_engine.Credentials()  # type: ignore[no-untyped-call]
    metadata.away = away
    async with rest(credentials) as made:
        with pytest.raises(Transient, match="could not authenticate"), translated("stat", "gs://b/o"):
            await made.get(f"{service.url}/o")
        metadata.away = 0
        assert await made.get(f"{service.url}/o") == {}
    assert service.asked[-1][2]["Authorization"] == "Bearer t1"


async def test_an_account_that_the_metadata_server_refuses_takes_a_person(
    service: Service, metadata: MetadataServer
) -> None:
    metadata.away = 403
    async with rest(compute_engine.Credentials()) as made:  # type: ignore[no-untyped-call]
        with pytest.raises(Fatal, match="credentials"), translated("stat", "gs://b/o"):
            await made.get(f"{service.url}/o")


async def test_a_token_that_is_due_serves_until_it_ends(service: Service, metadata: MetadataServer) -> None:
    credentials = compute_engine.Credentials()  # type: ignore[no-untyped-call]
    credentials.token, credentials.expiry = "t0", _helpers.utcnow() + timedelta(minutes=2)
    metadata.away = -1
    async with rest(credentials) as made:
        assert not credentials.valid
        assert await made.get(f"{service.url}/o") == {}
        credentials.expiry = _helpers.utcnow() - timedelta(seconds=1)
        with pytest.raises(Transient), translated("stat", "gs://b/o"):
            await made.get(f"{service.url}/o")
    assert [headers["Authorization"] for _, _, headers, _ in service.asked] == ["Bearer t0"]


class Unwell(Renewed):
    """Its tokens cannot be had until `enough` calls wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self.enough = threading.Event()

    def refresh(self, request: Any) -> None:
        self.times += 1
        self.enough.wait(30)
        raise auth.TransportError("away")


async def test_all_calls_that_wait_for_a_token_fail_together(service: Service) -> None:
    credentials = Unwell()
    async with rest(credentials) as made:
        waiting = [asyncio.create_task(made.get(f"{service.url}/o")) for _ in range(5)]
        await asyncio.sleep(0)  # all of them are waiting
        waiting.pop().cancel()
        credentials.enough.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in outcomes] == [auth.TransportError] * 4
    assert credentials.times == 1


async def test_with_a_proxy_in_the_environment_calls_go_through_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", service.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with rest() as made:
        assert await made.get("http://storage.invalid/o") == {}
    assert service.asked[0][1] in ("http://storage.invalid/o", "/o")
