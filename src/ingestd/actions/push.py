"""`push`: publish a Pub/Sub message that carries the key by which its receiver can tell a repetition."""

from collections.abc import Mapping
from typing import Any

import orjson

from ingestd.actions.context import ActionContext, Outcome, Step, idempotency_key
from ingestd.rules.actions import PushRequest
from ingestd.rules.expansion import render

IDEMPOTENCY_ATTRIBUTE = "ingestd-idempotency-key"
EVENT_ATTRIBUTE = "ingestd-event"


async def run(ctx: ActionContext, step: Step, request: PushRequest) -> Outcome:
    topic = request.topic
    if not topic.startswith("projects/"):
        topic = f"projects/{request.project_id or ctx.settings.project}/topics/{topic}"
    attributes = {key: render(value) for key, value in request.attributes.items()}
    attributes[IDEMPOTENCY_ATTRIBUTE] = idempotency_key(ctx, step)
    attributes[EVENT_ATTRIBUTE] = ctx.event_id
    message_id = await ctx.publisher.publish(
        topic, content(request.message if request.data is None else request.data), attributes
    )
    return Outcome({"MessageIDs": [message_id]}, details={"topic": topic, "message_id": message_id})


def content(value: Any) -> bytes:
    """Text as it is, anything structured as JSON."""
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, Mapping | list | tuple):
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    return render(value).encode()
