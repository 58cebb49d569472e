"""`call`: an HTTP request to an allowed host. Any answer but 2xx is a failure.

It carries an `Idempotency-Key`, so it may be repeated when the network fails or the server stumbles.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

import orjson

from ingestd.actions.context import ActionContext, Outcome, Step, idempotency_key
from ingestd.actions.push import content
from ingestd.model.errors import BadInput, Throttled, Transient
from ingestd.model.objects import ObjectRef
from ingestd.ports import HttpAnswer
from ingestd.retry import RetryPolicy
from ingestd.rules.actions import CallRequest

_KEPT_BODY = 64 * 1024  # of an answer, for the next action's variables and the journal


async def run(ctx: ActionContext, step: Step, request: CallRequest) -> Outcome:
    check_host(request.url, ctx.settings.allowed_hosts)
    shown = without_query(request.url)
    headers = await _headers(ctx, step, request)
    body = await _body(ctx, request)
    retries = ctx.settings.call_retries if request.retries is None else request.retries

    async def attempt() -> HttpAnswer:
        answer = await ctx.http.request(
            str(request.method),
            request.url,
            headers=headers,
            body=body,
            limit=request.timeout or ctx.settings.timeout,
        )
        if failure := judge(answer, f"{request.method} {shown}"):
            raise failure
        return answer

    answer = await ctx.retrier.call(attempt, "actions.call", resource=shown, policy=RetryPolicy(attempts=retries + 1))
    return Outcome(_response(answer), details={"url": shown, "status": answer.status})


def check_host(url: str, allowed: tuple[str, ...]) -> None:
    """Refuse a URL outside the operator's list. `*.example.com` covers every host below example.com."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise BadInput(f"call: {url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise BadInput(f"call: {url!r} is no http(s) URL")
    if parts.username or parts.password:
        raise BadInput("call: credentials in a URL end up in logs; use Headers or Auth")
    spellings = (host, f"{host}:{port}") if port else (host,)
    if not any(fnmatchcase(spelling, pattern.lower()) for pattern in allowed for spelling in spellings):
        raise BadInput(f"call: host {host} is not allowed; add it to actions.allowed_hosts in the settings")


def judge(answer: HttpAnswer, what: str) -> BadInput | Transient | Throttled | None:
    """What a status means: 2xx is success, a stumbling server is worth another try, the rest is refused for good."""
    if 200 <= answer.status < 300:
        return None
    message = f"{what}: answered {answer.status}: {answer.body[:300].decode(errors='replace')}"
    if answer.status == 429:
        return Throttled(message)
    if answer.status == 408 or answer.status >= 500:
        return Transient(message)
    return BadInput(message)


async def _headers(ctx: ActionContext, step: Step, request: CallRequest) -> dict[str, str]:
    headers = {"Idempotency-Key": idempotency_key(ctx, step), "User-Agent": "ingestd"}
    if isinstance(request.body, Mapping | list | tuple):
        headers["Content-Type"] = "application/json"
    if request.scopes:
        headers["Authorization"] = f"Bearer {await ctx.http.access_token(request.scopes)}"
    elif request.auth:
        headers["Authorization"] = f"Bearer {await ctx.http.identity_token(without_query(request.url))}"
    named = {key.lower() for key in request.headers}
    return {**{key: value for key, value in headers.items() if key.lower() not in named}, **request.headers}


async def _body(ctx: ActionContext, request: CallRequest) -> bytes:
    if not request.body_url:
        return content(request.body)
    try:
        ref = ObjectRef.parse(request.body_url)
    except ValueError as error:
        raise BadInput(f"call: BodyURL: {error}") from error
    data, _ = await ctx.store.read(ref)
    return data


def _response(answer: HttpAnswer) -> dict[str, Any]:
    """What the next action sees as `$StatusCode`, `$Headers`, `$Data` (parsed JSON) and `$Body`."""
    try:
        data = orjson.loads(answer.body) if len(answer.body) <= _KEPT_BODY else None
    except orjson.JSONDecodeError:
        data = None
    return {
        "StatusCode": answer.status,
        "Headers": dict(answer.headers),
        "Data": data,
        "Body": answer.body[:_KEPT_BODY].decode(errors="replace"),
    }


def without_query(url: str) -> str:
    """The URL as it may be logged: a query can hold secrets."""
    return urlsplit(url)._replace(query="", fragment="").geturl()
