"""The session of Google's clients: what goes over the wire is what `requests` would send, and failures are its own."""

from collections.abc import Iterator

import pytest
import requests
from google.api_core import exceptions as api
from google.auth.credentials import AnonymousCredentials
from tests.support.answering import Asked, Said, answering

from ingestd.gcp.session import Session


def echo(asked: Asked) -> Said:
    if asked.path == "/moved":
        return 302, {"Location": "/there"}, b""
    if asked.path == "/odd":
        return 503, {}, b'{"error": "upstream unavailable"}'
    return 200, {}, f"{asked.method} {asked.path} {asked.headers.get('X-Mark', '')} ".encode() + asked.body


@pytest.fixture
def server() -> Iterator[str]:
    with answering(echo) as url:
        yield url


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(AnonymousCredentials(), 2) as made:  # type: ignore[no-untyped-call]
        yield made


def test_a_call_carries_its_method_path_headers_and_body(server: str, session: Session) -> None:
    url = f"{server}/o/a%2Fb?x=1%2B2"
    answer = session.request("POST", url, data=b"body", headers={"X-Mark": "m"}, timeout=10)
    assert (answer.status_code, answer.content) == (200, b"POST /o/a%2Fb?x=1%2B2 m body")
    assert session.request("PATCH", url, data="text", timeout=10).content.endswith(b" text")
    assert session.request("GET", url, timeout=10).content == b"GET /o/a%2Fb?x=1%2B2  "
    assert session.request("DELETE", url).content.startswith(b"DELETE ")
    assert session.request("POST", url).content.startswith(b"POST "), "without a body it says so, and is not refused"


def test_an_answer_that_is_streamed_is_left_to_the_caller(server: str, session: Session) -> None:
    with session.request("GET", server, stream=True, timeout=10) as answer:
        assert answer.raw.read() == b"GET /  "


def test_whatever_else_is_asked_for_goes_the_usual_way(server: str, session: Session) -> None:
    assert session.request("GET", server, params={"a": "b"}, timeout=10).content == b"GET /?a=b  "
    assert session.request("GET", f"{server}/moved", timeout=10).content == b"GET /there  "


def test_with_a_proxy_in_the_environment_calls_go_through_it(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with Session(AnonymousCredentials(), 2) as session:  # type: ignore[no-untyped-call]
        answer = session.request("GET", "http://storage.invalid/o", timeout=10)
    assert answer.content == b"GET http://storage.invalid/o  "


def test_a_service_that_is_not_there_is_a_connection_error(session: Session) -> None:
    with pytest.raises(requests.ConnectionError):
        session.request("GET", "http://127.0.0.1:9/o", timeout=10)


@pytest.mark.parametrize("stream", [False, True])
def test_an_odd_error_is_one_that_the_clients_can_read(server: str, session: Session, stream: bool) -> None:
    answer = session.request("GET", f"{server}/odd", timeout=10, stream=stream)
    with pytest.raises(api.ServiceUnavailable, match="upstream unavailable"):
        raise api.from_http_response(answer)  # type: ignore[no-untyped-call]
