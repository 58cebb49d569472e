"""`call`: an HTTP request to an allowed host. Any answer but 2xx is a failure.

It carries an `Idempotency-Key`, so it may be repeated when the network fails or the server stumbles.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from ingestd.actions.context import ActionContext, Outcome, Step, idempotency_key
from ingestd.actions.hosts import check_host, reach
from ingestd.actions.objects import content_of
from ingestd.actions.push import content
from ingestd.model.errors import BadInput, Throttled, Transient
from ingestd.model.objects import ObjectRef
from ingestd.ops.redaction import hide
from ingestd.ports import HttpAnswer
from ingestd.retry import RetryPolicy
from ingestd.rules.actions import CallRequest
from ingestd.rules.expansion import Scope
from ingestd.rules.secrets import public_url

_LARGEST_BODY = 32 << 20  # bytes of a file; Cloud Run takes no larger request
_KEPT_BODY = 64 * 1024  # of an answer, for the next action's variables and the journal


async def run(ctx: ActionContext, step: Step, request: CallRequest) -> Outcome:
    check_host(request.url, ctx.settings.allowed_hosts)
    shown = public_url(request.url)
    headers = await _headers(ctx, step, request)
    body = await _body(ctx, step, request)
    retries = ctx.settings.call_retries if request.retries is None else request.retries

    async def attempt() -> HttpAnswer:
        answer = await ctx.http.request(
            str(request.method),
            request.url,
            headers=headers,
            body=body,
            limit=request.timeout or ctx.settings.timeout,
            reach=reach(request.url, ctx.settings.allowed_hosts),
        )
        if failure := judge(answer, f"{request.method} {shown}"):
            raise failure
        return answer

    answer = await ctx.retrier.call(attempt, "actions.call", resource=shown, policy=RetryPolicy(attempts=retries + 1))
    return Outcome(_response(answer), details={"url": shown, "status": answer.status})


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
        headers["Authorization"] = f"Bearer {hide(await ctx.http.access_token(request.scopes))}"
    elif request.auth:
        headers["Authorization"] = f"Bearer {hide(await ctx.http.identity_token(without_query(request.url)))}"
    named = {key.lower() for key in request.headers}
    return {**{key: value for key, value in headers.items() if key.lower() not in named}, **request.headers}


async def _body(ctx: ActionContext, step: Step, request: CallRequest) -> bytes:
    """The body, from the rule (already filled in) or from a file, whose variables are filled in here."""
    if request.body is not None or not request.body_url:
        return content(request.body)
    try:
        ref = ObjectRef.parse(request.body_url)
    except ValueError as error:
        raise BadInput(f"call: BodyURL: {error}") from error
    data = await content_of(ctx, ref, "call: BodyURL", largest=_LARGEST_BODY)
    try:
        return content(Scope(step.values).expand_text(data.decode()))
    except UnicodeDecodeError:
        return data  # no text, so there is nothing to fill in


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
    """The audience of a token."""
    return urlsplit(url)._replace(query="", fragment="").geturl()
