"""The protobuf types of Pub/Sub, and the few bytes of encoding the hot path writes by hand.

A message is encoded once, when it is published, and never decoded again on its way out: a response is the
concatenation of `ReceivedMessage` pieces, each an ack id in front of the stored bytes. `received_messages` has field
number 1 in both PullResponse and StreamingPullResponse, so the same pieces serve both.
"""

from collections.abc import Sequence
from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2  # type: ignore[import-untyped]
from google.protobuf import empty_pb2
from google.pubsub_v1.types import pubsub as _types

# The pb classes are made at run time, so a type checker knows nothing about them: they are `Any` on purpose.
Topic: Any = _types.Topic.pb()
Subscription: Any = _types.Subscription.pb()
Snapshot: Any = _types.Snapshot.pb()
PubsubMessage: Any = _types.PubsubMessage.pb()
PublishRequest: Any = _types.PublishRequest.pb()
PullRequest: Any = _types.PullRequest.pb()
PullResponse: Any = _types.PullResponse.pb()
AcknowledgeRequest: Any = _types.AcknowledgeRequest.pb()
ModifyAckDeadlineRequest: Any = _types.ModifyAckDeadlineRequest.pb()
StreamingPullRequest: Any = _types.StreamingPullRequest.pb()
StreamingPullResponse: Any = _types.StreamingPullResponse.pb()
Policy: Any = policy_pb2.Policy
Empty: Any = empty_pb2.Empty
iam: Any = iam_policy_pb2


def request_type(name: str) -> Any:
    return getattr(_types, name).pb()


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame_message(encoded: bytes) -> bytes:
    """An encoded PubsubMessage as field 2 (`message`) of ReceivedMessage."""
    return b"\x12" + varint(len(encoded)) + encoded


def unframe_message(framed: bytes) -> bytes:
    start = 1
    while framed[start] & 0x80:
        start += 1
    return framed[start + 1 :]


def received_piece(ack_id: str, framed: bytes, delivery_attempt: int) -> bytes:
    """One `received_messages` entry (field 1) of a pull response."""
    ack = ack_id.encode()
    tail = b"\x18" + varint(delivery_attempt) if delivery_attempt else b""
    size = 2 + len(ack) + len(framed) + len(tail)  # ack ids stay under 128 bytes: one length byte
    return b"".join((b"\x0a", varint(size), b"\x0a", bytes((len(ack),)), ack, framed, tail))


def publish_response(message_ids: Sequence[str]) -> bytes:
    """PublishResponse: `message_ids` is field 1; ids are short digits."""
    return b"".join([b"\x0a" + bytes((len(mid),)) + mid.encode() for mid in message_ids])
