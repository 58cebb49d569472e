"""What Cloud Storage refuses, in its own words: status, reason and message of each error the service answers.

The core raises these; the server turns them into Google's JSON error body without adding meaning.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class StorageError(Exception):
    """One refused operation. `location` names the parameter or header at fault where Google does."""

    status: int
    reason: str
    message: str
    domain: str = "global"
    location: str = ""
    location_type: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"

    def body(self) -> dict[str, Any]:
        detail = {"message": self.message, "domain": self.domain, "reason": self.reason}
        if self.location:
            detail["locationType"] = self.location_type
            detail["location"] = self.location
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}


def no_such_bucket() -> StorageError:
    return StorageError(404, "notFound", "The specified bucket does not exist.")


def no_such_object(bucket: str, name: str) -> StorageError:
    return StorageError(404, "notFound", f"No such object: {bucket}/{name}")


def not_found(message: str = "Not Found") -> StorageError:
    return StorageError(404, "notFound", message)


def precondition_failed() -> StorageError:
    return StorageError(
        412,
        "conditionNotMet",
        "At least one of the pre-conditions you specified did not hold.",
        location="If-Match",
        location_type="header",
    )


def not_modified() -> StorageError:
    return StorageError(304, "notModified", "Not Modified", location="If-None-Match", location_type="header")


def conflict(message: str) -> StorageError:
    return StorageError(409, "conflict", message)


def invalid(message: str, *, parameter: str = "") -> StorageError:
    return StorageError(400, "invalid", message, location=parameter, location_type="parameter" if parameter else "")


def required(parameter: str) -> StorageError:
    return StorageError(
        400, "required", f"Required parameter: {parameter}", location=parameter, location_type="parameter"
    )


def forbidden(message: str) -> StorageError:
    return StorageError(403, "forbidden", message)


def gone(message: str) -> StorageError:
    return StorageError(410, "gone", message)


def range_not_satisfiable() -> StorageError:
    return StorageError(
        416,
        "requestedRangeNotSatisfiable",
        "Request range not satisfiable",
        location="Range",
        location_type="header",
    )


def rate_limited(bucket: str, name: str) -> StorageError:
    return StorageError(
        429,
        "rateLimitExceeded",
        f"The object {bucket}/{name} exceeded the rate limit for object mutation operations (create, update, and"
        " delete). Please reduce your request rate. See https://cloud.google.com/storage/docs/gcs429.",
        domain="usageLimits",
    )


def unsupported(feature: str) -> StorageError:
    return StorageError(501, "notImplemented", f"The local Cloud Storage does not implement {feature}.")
