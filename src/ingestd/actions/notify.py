"""`notify`: tell people through Slack: a message per channel, and a file where the rule gives a body.

The token comes from the rule's own reference, the settings or a mounted file; it is never logged. One that KMS encrypts
(`Credentials.Key`) is not read: the daemon's own stands for it, and lint says so.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from ingestd.actions.call import judge
from ingestd.actions.context import ActionContext, Outcome, Step, idempotency_key
from ingestd.actions.objects import content_of
from ingestd.actions.push import content
from ingestd.model.addresses import Address
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient
from ingestd.model.objects import ObjectRef
from ingestd.ops.redaction import hide
from ingestd.rules.actions import Credentials, NotifyRequest

_ID = re.compile(r"[CGDZ][A-Z0-9]{8,}")
_LARGEST_TOKEN = 64 << 10  # bytes of the file it is kept in
_WORTH_WAITING = frozenset({"ratelimited", "rate_limited"})
_WORTH_RETRYING = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
_NEEDS_A_PERSON = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "missing_scope"}
)


async def run(ctx: ActionContext, step: Step, request: NotifyRequest) -> Outcome:
    token = hide(await _token(ctx, request))
    posted: list[str] = []
    for channel in request.channels:
        # A file is shared with a channel's id alone; for its name, Slack tells the id when it posts the message.
        if request.message or request.body is None or not _ID.fullmatch(channel):
            answer = await _api(ctx, token, "chat.postMessage", _message(ctx, step, request, channel))
            posted.append(str(answer.get("ts", "")))
            channel = str(answer.get("channel") or channel)
        if request.body is not None:
            await _upload(ctx, token, request, channel)
    return Outcome(details={"channels": list(request.channels), "messages": len(posted)})


def _message(ctx: ActionContext, step: Step, request: NotifyRequest, channel: str) -> dict[str, Any]:
    message: dict[str, Any] = {"channel": channel, "text": request.title}
    if request.message:
        attachment = {"text": request.message, "fallback": request.title}
        if request.from_:
            attachment["author_name"] = request.from_
        message["attachments"] = [attachment]
    # Slack keeps metadata with the message: a repeated notification can be told by it.
    message["metadata"] = {
        "event_type": "ingestd_action",
        "event_payload": {"idempotency_key": idempotency_key(ctx, step), "event_id": ctx.event_id},
    }
    return message


async def _upload(ctx: ActionContext, token: str, request: NotifyRequest, channel: str) -> None:
    """Slack's three-step upload: ask for a place, put the bytes there, share the file."""
    data = content(request.body)
    name = request.filename or ("body.json" if isinstance(request.body, Mapping | list) else "body.txt")
    form = {"filename": name, "length": len(data)}
    if request.body_type:
        form["snippet_type"] = request.body_type
    place = await _api(ctx, token, "files.getUploadURLExternal", form, as_form=True)
    url = str(place.get("upload_url", ""))
    if not _same_site(url, ctx.settings.slack_url):
        raise Fatal(f"notify: Slack gave an upload address outside its own site: {urlsplit(url).hostname}")
    await _send(ctx, url, {"Content-Type": "application/octet-stream"}, data, "upload")
    share = {"files": [{"id": place.get("file_id"), "title": request.title}], "channel_id": channel}
    await _api(ctx, token, "files.completeUploadExternal", share)


async def _api(
    ctx: ActionContext, token: str, method: str, fields: Mapping[str, Any], *, as_form: bool = False
) -> dict[str, Any]:
    kind = "application/x-www-form-urlencoded" if as_form else "application/json; charset=utf-8"
    body = urlencode(fields).encode() if as_form else orjson.dumps(fields)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    return await _send(ctx, f"{ctx.settings.slack_url.rstrip('/')}/{method}", headers, body, method)


async def _send(ctx: ActionContext, url: str, headers: Mapping[str, str], body: bytes, method: str) -> dict[str, Any]:
    async def attempt() -> dict[str, Any]:
        answer = await ctx.http.request(
            "POST", url, headers=headers, body=body, limit=ctx.settings.timeout, reach=_anywhere
        )
        if failure := judge(answer, f"Slack {method}"):
            raise failure
        try:
            document = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            return {}  # the upload address answers plain text
        if isinstance(document, dict) and document.get("ok") is False:
            raise _refusal(method, str(document.get("error", "no reason given")))
        return document if isinstance(document, dict) else {}

    return await ctx.retrier.call(attempt, "actions.notify", resource=method)


def _anywhere(_address: Address) -> bool:
    """The settings say where Slack is."""
    return True


def _refusal(method: str, reason: str) -> IngestError:
    message = f"Slack {method}: {reason}"
    if reason in _WORTH_WAITING:
        return Throttled(message)
    if reason in _WORTH_RETRYING:
        return Transient(message)
    if reason in _NEEDS_A_PERSON:
        return Fatal(f"{message}; check the Slack token")
    return BadInput(message)


async def _token(ctx: ActionContext, request: NotifyRequest) -> str:
    settings = ctx.settings
    if request.token:
        return request.token
    if request.credentials and not request.credentials.key:
        return await _token_from(ctx, request.credentials)
    if settings.slack_token is not None:
        return settings.slack_token.get_secret_value()
    if settings.slack_token_file is not None:
        try:
            return (await asyncio.to_thread(settings.slack_token_file.read_text)).strip()
        except OSError as error:
            raise Fatal(f"notify: cannot read the Slack token file: {error}") from error
    if request.credentials:
        raise Fatal("notify: Credentials.Key (KMS) is not read: mount the token and set actions.slack_token_file")
    raise Fatal("notify: no Slack token; set actions.slack_token_file, or Credentials in the rule")


async def _token_from(ctx: ActionContext, credentials: Credentials) -> str:
    """A token kept in an object: JSON with `Token` (or the given parameter), or the bare text."""
    try:
        ref = ObjectRef.parse(credentials.url)
    except ValueError as error:
        raise BadInput(f"notify: Credentials.URL: {error}") from error
    data = await content_of(ctx, ref, "notify: Credentials.URL", largest=_LARGEST_TOKEN)
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode(errors="replace").strip()
    name = (credentials.parameter or "Token").lower()
    found = {str(key).lower(): value for key, value in document.items()} if isinstance(document, dict) else {}
    if not isinstance(found.get(name), str):
        raise Fatal(f"notify: {credentials.url} holds no {credentials.parameter or 'Token'}")
    return str(found[name])


def _same_site(url: str, base: str) -> bool:
    """Whether `url` belongs to the API's own registered domain (Slack uploads go to files.slack.com)."""
    host, home = (urlsplit(text).hostname or "" for text in (url, base))
    return bool(host) and (host == home or host.endswith("." + home))
