"""Every foreign error is one of the daemon's kinds, and its message helps."""

import http.client
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import grpc
import httpx
import pytest
import requests
import urllib3
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud.storage.exceptions import DataCorruption
from hypothesis import given
from hypothesis import strategies as st

from ingestd.gcp.errors import plain_error, retry_after, translate, translated
from ingestd.model.errors import (
    BadInput,
    Fatal,
    IngestError,
    NotFound,
    PreconditionFailed,
    Throttled,
    Transient,
)

KEYS = st.sampled_from(["error", "message", "errors", "details", "reason", "@type", "other"])


def refused(status: int, reason: str = "", headers: dict[str, str] | None = None) -> api.GoogleAPICallError:
    errors = [{"reason": reason, "message": "m"}] if reason else []
    response = SimpleNamespace(headers=headers or {})
    return api.from_http_status(status, "what the service said", errors=errors, response=response)


def wrapped(cause: auth.GoogleAuthError) -> auth.RefreshError:
    """As `compute_engine.Credentials` does it."""
    error = auth.RefreshError("what it says of the cause")
    error.__cause__ = cause
    return error


CASES = [
    (refused(400, "invalid"), BadInput),
    (refused(401), Fatal),
    (refused(403, "accessDenied"), Fatal),
    (refused(403, "rateLimitExceeded"), Throttled),
    (refused(403, "quotaExceeded"), Throttled),
    (refused(404, "notFound"), NotFound),
    (refused(408), Transient),
    (refused(409, "duplicate"), PreconditionFailed),
    (refused(410), Transient),
    (refused(412, "conditionNotMet"), PreconditionFailed),
    (refused(429), Throttled),
    (refused(400, "jobRateLimitExceeded"), Throttled),
    (refused(400, "tableUnavailable"), Transient),
    (refused(400, "resourcesExceeded"), Fatal),
    (refused(400, "billingTierLimitExceeded"), Fatal),
    (refused(500, "parseError"), BadInput),
    (refused(500, "somethingNew"), Transient),
    (refused(500), Transient),
    (refused(501), Fatal),
    (refused(502), Transient),
    (refused(503, "backendError"), Transient),
    (api.DeadlineExceeded("slow"), Transient),
    (api.ServiceUnavailable("reset"), Transient),
    (api.ResourceExhausted("too fast"), Throttled),
    (api.Aborted("again"), Transient),
    (api.from_grpc_status(grpc.StatusCode.UNKNOWN, "?"), Transient),
    (api.from_grpc_status(grpc.StatusCode.DATA_LOSS, "?"), Transient),
    (api.from_grpc_status(grpc.StatusCode.CANCELLED, "?"), Transient),
    (api.from_grpc_status(grpc.StatusCode.OUT_OF_RANGE, "?"), BadInput),
    (api.from_grpc_status(grpc.StatusCode.UNIMPLEMENTED, "?"), Fatal),
    (api.ServiceUnavailable("no list", errors=None), Transient),
    (requests.exceptions.JSONDecodeError("Expecting value", "<html>", 0), Transient),
    (api.FailedPrecondition("not now"), Fatal),
    (api.PermissionDenied("no"), Fatal),
    (api.RetryError("gave up", None), Transient),
    (requests.ConnectionError("reset"), Transient),
    (requests.ReadTimeout("slow"), Transient),
    (requests.exceptions.ChunkedEncodingError("cut"), Transient),
    (requests.exceptions.InvalidURL("bad"), Fatal),
    (urllib3.exceptions.ProtocolError("cut"), Transient),
    (http.client.RemoteDisconnected("gone"), Transient),
    (httpx.ConnectError("refused"), Transient),
    (httpx.ReadTimeout("slow"), Transient),
    (httpx.RemoteProtocolError("cut"), Transient),
    (DataCorruption(None, "checksum"), Transient),
    (ConnectionResetError("reset"), Transient),
    (TimeoutError("slow"), Transient),
    (auth.TransportError("metadata server"), Transient),
    (auth.RefreshError("expired", retryable=True), Transient),
    (auth.RefreshError("revoked"), Fatal),
    (auth.RefreshError("invalid_grant: no", {"error": "invalid_grant"}), Fatal),
    (wrapped(auth.TransportError("metadata server: refused")), Transient),
    (auth.RefreshError(auth.TransportError("metadata server: refused")), Transient),
    (wrapped(auth.TransportError("metadata server: 502", SimpleNamespace(status=502))), Transient),
    (wrapped(auth.TransportError("metadata server: 403", SimpleNamespace(status=403))), Fatal),
    (auth.RefreshError("impersonation", '{"error": {"code": 503}}'), Transient),
    (auth.RefreshError("impersonation", '{"error": {"code": 403}}'), Fatal),
    (auth.OAuthError("exchange", '{"error": {"code": 500}}'), Transient),
    (auth.OAuthError("exchange", "Service Unavailable"), Fatal),
    (auth.DefaultCredentialsError("none"), Fatal),
    (KeyError("bug"), Fatal),
]


@pytest.mark.parametrize(("error", "kind"), CASES, ids=lambda case: repr(case)[:60])
def test_each_error_is_one_kind_and_names_the_resource(error, kind):
    found = translate(error, "read", "gs://b/o")
    assert type(found) is kind
    assert "read gs://b/o" in str(found)


def test_a_quota_is_told_from_a_rate():
    assert translate(refused(403, "quotaExceeded"), "insert", "t").quota is True
    assert translate(refused(403, "rateLimitExceeded"), "insert", "t").quota is False


def test_messages_say_what_to_do():
    assert "grant" in str(translate(refused(403), "read", "t"))
    assert "create it" in str(translate(refused(404), "read", "t"))
    assert "credentials" in str(translate(refused(401), "read", "t"))


def test_messages_are_the_service_s_words_without_the_wrapping():
    document = '{"error":{"code":404,"message":"The bucket \\"b\\" does not exist.","errors":[]}}'
    wrapped = f"POST http://host/upload/b/o?uploadType=multipart: {document}: ('Request failed', 404)"
    said = str(translate(api.from_http_status(404, wrapped), "write", "gs://b/o"))
    assert said.startswith('write gs://b/o: 404 POST http://host/upload/b/o: The bucket \\"b\\" does not exist.;'), said
    plain = "GET http://host/b/o?prefix=a%2F&fields=items: No such object: b/o?x: y"
    said = str(translate(api.from_http_status(404, plain), "read", "gs://b/o"))
    assert "404 GET http://host/b/o: No such object: b/o?x: y" in said, said


def test_raw_grpc_errors_are_known_too():
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "connection lost"
    )
    assert isinstance(translate(error, "pull", "s"), Transient)


def test_retry_after_is_kept():
    found = translate(refused(429, headers={"Retry-After": "30"}), "read", "t")
    assert timedelta(seconds=25) < found.until - datetime.now(UTC) <= timedelta(seconds=30)
    soon = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    assert retry_after({"retry-after": format_datetime(soon, usegmt=True)}) == soon
    assert retry_after({}) is None


@pytest.mark.parametrize("told", ["Wed, 21 Oct 2065 07:28:00 GMT", "999999999"])
def test_nobody_is_waited_for_longer_than_a_day(told):
    assert retry_after({"Retry-After": told}) <= datetime.now(UTC) + timedelta(days=1)


def test_a_date_that_no_calendar_has_is_no_time_to_wait_for():
    assert retry_after({"Retry-After": "1 Jan 99999999999999999999 00:00:00"}) is None
    assert retry_after({"Retry-After": "9" * 5_000}) is None


ODD = [
    b'{"error": "backend unavailable"}',
    b'{"error": null}',
    b'{"error": ["x"]}',
    b'{"error": {"message": null, "errors": null}}',
    b'{"error": {"message": "m", "errors": 5, "details": ["x"]}}',
    b'{"error": {"message": "m", "details": null}}',
    b'"Service Unavailable"',
    b"503",
    b"[]",
    b"null",
    b"",
    b"<html>",
]


@pytest.mark.parametrize("content", ODD)
def test_an_error_s_document_may_look_like_anything(content):
    response = requests.Response()
    response.status_code, response._content = 503, plain_error(content)
    response.request = requests.Request("GET", "http://x/y").prepare()
    found = translate(api.from_http_response(response), "read", "gs://b/o")
    assert type(found) is Transient


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner))
)
def test_no_document_of_an_error_breaks_anything(document):
    test_an_error_s_document_may_look_like_anything(json.dumps(document).encode())


def test_a_document_as_google_writes_it_stays_as_it_is():
    content = b'{"error": {"message": "m", "errors": [{"reason": "backendError"}], "details": [{"@type": "t"}]}}'
    assert plain_error(content) is content


@given(st.text())
def test_no_retry_after_text_breaks_anything(text):
    assert retry_after({"Retry-After": text}) is None or isinstance(retry_after({"Retry-After": text}), datetime)


def test_our_own_errors_pass_unchanged_and_the_cause_is_kept():
    ours = Throttled("slow down")
    with pytest.raises(Throttled) as raised, translated("read", "x"):
        raise ours
    assert raised.value is ours
    cause = ConnectionResetError("reset")
    with pytest.raises(IngestError) as raised, translated("read", "x"):
        raise cause
    assert raised.value.__cause__ is cause
