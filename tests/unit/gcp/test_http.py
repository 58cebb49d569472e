"""The HTTP port against a real server on loopback."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from ingestd.gcp.http import HttpxClient
from ingestd.gcp.threads import Threads
from ingestd.localcloud.http import DropConnection, HttpServer, Request, Response
from ingestd.model.clock import ManualClock
from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.retry import ONCE, Retrier

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
            Retrier(ONCE),
            clock=google.clock,
            fetch_identity=google.identity,
            fetch_access=google.access,
        )
    await threads.close()


async def get(client: HttpxClient, url: str, limit: timedelta = SECOND):
    return await client.request("GET", url, headers={}, body=b"", limit=limit)


async def test_a_request_goes_out_and_the_answer_comes_back(client, server):
    found = await client.request("POST", f"{server}/echo", headers={"X-Mine": "1"}, body=b"\x00body", limit=SECOND)
    assert (found.status, found.body) == (201, b"\x00body")
    assert (found.headers["x-method"], found.headers["x-mine"]) == ("POST", "1")


async def test_an_unhappy_answer_is_an_answer(client, server):
    assert (await get(client, f"{server}/nothing")).status == 404


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
