"""BigQuery errors: an HTTP status, a reason and a message, with the file at fault as `location` where known."""

from dataclasses import dataclass, field
from typing import Any

# https://cloud.google.com/bigquery/docs/error-messages: the status that goes with each reason.
STATUS = {
    "accessDenied": 403,
    "backendError": 503,
    "badRequest": 400,
    "bytesBilledLimitExceeded": 400,
    "conditionNotMet": 412,
    "duplicate": 409,
    "internalError": 500,
    "invalid": 400,
    "invalidQuery": 400,
    "jobRateLimitExceeded": 400,
    "notFound": 404,
    "notImplemented": 501,
    "quotaExceeded": 403,
    "rateLimitExceeded": 403,
    "required": 400,
    "resourceInUse": 400,
    "resourcesExceeded": 400,
    "stopped": 200,
    "tableUnavailable": 400,
}


@dataclass(frozen=True, slots=True)
class ErrorProto:
    """One entry of a job's `errors[]`."""

    reason: str
    message: str
    location: str = ""

    def rest(self) -> dict[str, str]:
        proto = {"reason": self.reason, "message": self.message}
        return proto | {"location": self.location} if self.location else proto


@dataclass
class BigQueryError(Exception):
    """A refused request, or the `errorResult` of a job together with the details that led to it."""

    reason: str
    message: str
    location: str = ""
    details: tuple[ErrorProto, ...] = field(default=())

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def status(self) -> int:
        return STATUS.get(self.reason, 400)

    @property
    def proto(self) -> ErrorProto:
        return ErrorProto(self.reason, self.message, self.location)

    def rest(self) -> dict[str, Any]:
        """The body of an HTTP error answer."""
        entry = {"message": self.message, "domain": "global", "reason": self.reason}
        return {"error": {"code": self.status, "message": self.message, "errors": [entry], "status": self.reason}}


def not_implemented(feature: str) -> BigQueryError:
    """The honest answer for what the local BigQuery does not do."""
    return BigQueryError("notImplemented", f"the local BigQuery does not support {feature}")
