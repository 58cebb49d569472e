"""The HTTP port against a real server on loopback."""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.support.listening import deaf, dripping, listening
from tests.support.manual_clock import ManualClock

from ingestd.gcp.http import HttpxClient
from ingestd.gcp.threads import Threads
from ingestd.localcloud.http import DropConnection, HttpServer, Request, Response
from ingestd.model.addresses import Address
from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.retry import Retrier, RetryPolicy

SECOND = timedelta(seconds=1)


def jwt(expires: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"h.{claims}.s"


async def answer(request: Request) -> Response:
    match request.path:
        case "/echo":
            return Response(
                201, request.body, {"x-method": request.method, "x-mine": request.headers.get("x-mine", "")}
            )
        case "/host":
            return Response(200, request.headers["host"].encode())
        case "/slow":
            await asyncio.sleep(0.5)
            return Response(200)
        case "/cut":
            raise DropConnection
        case "/away":
            return Response(302, b"", {"location": "http://127.0.0.1:1/elsewhere"})
        case "/huge":
            return Response(200, b"x" * (17 * 1024 * 1024))
    return Response(404, b"nothing here")


class Google:
    """Stands in for Google's token endpoints."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.fetched: list[object] = []
        self.fails: Exception | None = None

    def identity(self, audience: str) -> str:
        self.fetched.append(audience)
        if self.fails:
            raise self.fails
        return jwt(self.clock.now().timestamp() + 3600)

    def access(self, scopes) -> tuple[str, float]:
        self.fetched.append(tuple(scopes))
        return "access", self.clock.now().timestamp() + 3600


@pytest.fixture
async def server() -> AsyncIterator[str]:
    made = HttpServer(answer)
    await made.start()
    yield f"http://127.0.0.1:{made.port}"
    await made.stop()


@pytest.fixture
def google() -> Google:
    return Google(ManualClock())


@pytest.fixture
async def client(google: Google) -> AsyncIterator[HttpxClient]:
    threads = Threads("test", 2)
    async with httpx.AsyncClient() as web:
        yield HttpxClient(
            web,
            threads,
            Retrier(RetryPolicy(attempts=1)),
            clock=google.clock,
            fetch_identity=google.identity,
            fetch_access=google.access,
            proxied=False,
        )
    await threads.close()


def anywhere(_address: Address) -> bool:
    return True


async def get(client: HttpxClient, url: str, limit: timedelta = SECOND, reach: Any = anywhere):
    return await client.request("GET", url, headers={}, body=b"", limit=limit, reach=reach)


async def test_a_request_goes_out_and_the_answer_comes_back(client, server):
    found = await client.request(
        "POST", f"{server}/echo", headers={"X-Mine": "1"}, body=b"\x00body", limit=SECOND, reach=anywhere
    )
    assert (found.status, found.body) == (201, b"\x00body")
    assert (found.headers["x-method"], found.headers["x-mine"]) == ("POST", "1")


async def test_an_unhappy_answer_is_an_answer(client, server):
    assert (await get(client, f"{server}/nothing")).status == 404


class Names:
    """A name server whose answers change: each question takes the next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.asked = 0
        self._answers = answers
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host != "hook.example.com":
            return self._real(host, port, *args, **options)
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return [found for address in answer for found in self._real(address, port, *args, **options)]


async def test_a_name_that_leads_inside_is_refused(client, server, monkeypatch):
    url = server.replace("127.0.0.1", "hook.example.com")
    Names(monkeypatch, ["127.0.0.1", "169.254.169.254"])
    with pytest.raises(BadInput, match=r"hook\.example\.com leads to 127\.0\.0\.1, 169\.254\.169\.254"):
        await client.request("GET", f"{url}/echo", headers={}, body=b"", limit=SECOND)


async def test_the_connection_goes_to_the_address_that_was_asked_about(client, server, monkeypatch):
    """Asked once: whatever the name leads to a moment later is never connected to. The server hears the name."""
    url = server.replace("127.0.0.1", "hook.example.com")
    names = Names(monkeypatch, ["127.0.0.1"], ["127.0.0.9"])
    asked = []
    found = await get(client, f"{url}/host", reach=lambda address: asked.append(str(address)) or True)
    assert (found.status, found.body.decode()) == (200, url.removeprefix("http://"))
    assert (asked, names.asked) == (["127.0.0.1"], 1)


async def test_an_address_that_does_not_answer_gives_way_to_the_next(client, server, monkeypatch):
    url = server.replace("127.0.0.1", "hook.example.com")
    Names(monkeypatch, ["127.0.0.8", "127.0.0.9", "127.0.0.1"])
    found = await get(client, f"{url}/host", reach=lambda address: str(address) != "127.0.0.9")
    assert found.status == 200


async def test_redirects_are_not_followed(client, server):
    assert (await get(client, f"{server}/away")).status == 302


async def test_a_slow_or_cut_answer_is_transient_and_hides_the_query(client, server):
    with pytest.raises(Transient) as slow:
        await get(client, f"{server}/slow?token=secret", timedelta(seconds=0.05))
    assert "secret" not in str(slow.value)
    with pytest.raises(Transient):
        await get(client, f"{server}/cut")
    with pytest.raises(Transient):
        await get(client, "http://127.0.0.1:1/")


async def test_an_answer_that_drips_is_given_up_at_the_limit(client):
    endless = dripping(b"Transfer-Encoding: chunked", b"1\r\n.\r\n")
    async with listening(endless) as port, asyncio.timeout(30):
        with pytest.raises(Transient, match="not answered in full within") as given_up:
            await get(client, f"http://127.0.0.1:{port}/?token=secret", timedelta(seconds=0.3))
    assert "secret" not in str(given_up.value)


async def test_a_body_that_nobody_takes_is_given_up_at_the_limit(client):
    async with listening(deaf) as port, asyncio.timeout(30):
        url, limit = f"http://127.0.0.1:{port}/", timedelta(seconds=0.3)
        with pytest.raises(Transient):
            await client.request("POST", url, headers={}, body=bytes(20_000_000), limit=limit, reach=anywhere)


async def test_an_address_that_takes_no_connection_leaves_time_for_the_next(client, server, monkeypatch):
    """Its backlog is full, so it does not even refuse."""
    with socket.socket() as full:
        full.bind(("127.0.0.8", int(server.rpartition(":")[2])))
        full.listen(0)
        with ExitStack() as stack:
            for _ in range(3):
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            Names(monkeypatch, ["127.0.0.8", "127.0.0.1"])
            url = server.replace("127.0.0.1", "hook.example.com")
            assert (await get(client, f"{url}/host", timedelta(seconds=4))).status == 200


async def test_nonsense_urls_and_endless_answers_are_refused(client, server):
    with pytest.raises(BadInput):
        await get(client, "nonsense://x")
    with pytest.raises(BadInput, match="larger"):
        await get(client, f"{server}/huge", timedelta(seconds=5))


async def test_tokens_are_kept_until_shortly_before_they_expire(client, google):
    assert await client.identity_token("a") == await client.identity_token("a")
    await client.identity_token("b")
    await client.access_token(["s"])
    await client.access_token(["s"])
    assert google.fetched == ["a", "b", ("s",)]
    google.clock.advance(timedelta(minutes=56))
    await client.identity_token("a")
    assert google.fetched[-1] == "a" and len(google.fetched) == 4


async def test_tokens_that_are_kept_stay_few(client, google):
    """A URL that holds a variable asks for a token per event."""
    for number in range(1_000):
        await client.identity_token(f"https://api.example.com/loaded/{number}")
        await client.identity_token("https://api.example.com/often")
    assert len(client._tokens) <= 200
    assert google.fetched.count("https://api.example.com/often") == 1
    google.clock.advance(timedelta(hours=2))
    await client.identity_token("a")
    assert len(client._tokens) == 1, "what has expired is not kept"


async def test_an_unreadable_token_is_never_kept(client, google):
    google.identity = lambda audience: google.fetched.append(audience) or "opaque"
    client._fetch_identity = google.identity
    await client.identity_token("a")
    await client.identity_token("a")
    assert google.fetched == ["a", "a"]


async def test_missing_credentials_are_fatal(client, google):
    from google.auth.exceptions import DefaultCredentialsError

    google.fails = DefaultCredentialsError("none here")
    with pytest.raises(Fatal, match="credentials"):
        await client.identity_token("a")


async def test_credentials_that_were_there_before_are_away_for_a_moment(client, google):
    """Google's library looks for them each time anew, and takes a metadata server that does not answer for none."""
    from google.auth.exceptions import DefaultCredentialsError

    await client.identity_token("a")
    google.fails = DefaultCredentialsError("Neither metadata server or valid service account credentials are found.")
    with pytest.raises(Transient, match="metadata server"):
        await client.identity_token("b")
