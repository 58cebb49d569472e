"""Refusals of the local Pub/Sub: a gRPC status name, a sentence, and where it applies the ack ids at fault."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ingestd.localcloud.faults import Fault


class Code(StrEnum):
    """The gRPC statuses Pub/Sub answers with; the value is the name used on both wires."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    UNAUTHENTICATED = "UNAUTHENTICATED"


# google.rpc.Code's documented mapping to HTTP.
HTTP_STATUS = {
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}

_CODE_OF_HTTP = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.ALREADY_EXISTS,
    412: Code.FAILED_PRECONDITION,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}

# What Google's clients look for in the ErrorInfo of a refused ack on an exactly-once subscription.
INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"


@dataclass
class PubSubError(Exception):
    """A refused request. `ack_failures` maps ack ids to the reason an exactly-once subscription refused them."""

    code: Code
    message: str
    ack_failures: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def http_status(self) -> int:
        return HTTP_STATUS[self.code]


def invalid(message: str) -> PubSubError:
    return PubSubError(Code.INVALID_ARGUMENT, message)


def not_found(name: str) -> PubSubError:
    return PubSubError(Code.NOT_FOUND, f"Resource not found (resource={name.rpartition('/')[2]}).")


def unsupported(feature: str) -> PubSubError:
    """The honest answer for what the local Pub/Sub does not do."""
    return PubSubError(Code.UNIMPLEMENTED, f"the local Pub/Sub does not support {feature}")


def rehearsed(fault: Fault) -> PubSubError:
    """A fault's HTTP status as the gRPC status Google would have answered."""
    return PubSubError(_CODE_OF_HTTP.get(fault.status, Code.UNKNOWN), fault.message)


def lost_response() -> PubSubError:
    """The work is done, the client cannot know: what a broken connection looks like to it."""
    return PubSubError(Code.UNAVAILABLE, "rehearsed failure: the response was lost")
