"""The local cloud's own endpoints, beside Google's: rehearse faults, read operation counters, ask whether it is up.

    GET /_ingestd/health      GET /_ingestd/counters      GET|POST|DELETE /_ingestd/faults

They live on the storage port under a path no bucket can have (bucket names hold no underscore at the start).
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import orjson

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan, Hooks
from ingestd.localcloud.http import Handler, Request, Response

PREFIX = "/_ingestd/"

SERVICES = ("storage", "pubsub", "bigquery")
_NAMES = tuple(field.name for field in fields(Fault))


class InvalidFaultError(ValueError):
    """A fault that cannot be rehearsed as written; the message says what is wrong with it."""


def parse_fault(document: object) -> Fault:
    """A fault from its JSON form. Wrong names are refused: a rehearsal that silently does nothing teaches nothing."""
    if not isinstance(document, dict):
        raise InvalidFaultError('a fault is a JSON object, e.g. {"service": "storage", "method": "*", "kind": "fail"}')
    if unknown := sorted(set(document) - set(_NAMES)):
        raise InvalidFaultError(f"unknown field {unknown[0]!r}; a fault has {', '.join(_NAMES)}")
    if missing := [name for name in ("service", "method", "kind") if name not in document]:
        raise InvalidFaultError(f"{missing[0]!r} is missing")
    values: dict[str, Any] = dict(document)
    if values["service"] not in (*SERVICES, "*"):
        raise InvalidFaultError(f"unknown service {values['service']!r}; there are {', '.join(SERVICES)} and *")
    try:
        values["kind"] = FaultKind(values["kind"])
    except ValueError:
        raise InvalidFaultError(f"unknown kind {values['kind']!r}; there are {', '.join(FaultKind)}") from None
    for name, types in (
        ("method", str),
        ("resource", str),
        ("reason", str),
        ("message", str),
        ("status", int),
        ("seconds", (int, float)),
        ("times", (int, type(None))),
    ):
        if name in values and (isinstance(values[name], bool) or not isinstance(values[name], types)):
            raise InvalidFaultError(f"{name!r} has the wrong type: {values[name]!r}")
    if values.get("times") is not None and values["times"] < 1:
        raise InvalidFaultError("'times' is at least 1; leave it out to last until cleared")
    if not 400 <= values.get("status", 503) <= 599:
        raise InvalidFaultError("'status' is an HTTP error status, 400 to 599")
    if values["kind"] is FaultKind.DELAY and values.get("seconds", 0) <= 0:
        raise InvalidFaultError("a delay needs 'seconds'")
    return Fault(**values)


class Control:
    """Answers the control endpoints over the fault plan and hooks that the three services share."""

    def __init__(self, plan: FaultPlan, hooks: Mapping[str, Hooks]) -> None:
        self._plan = plan
        self._hooks = hooks

    def mounted_on(self, handler: Handler) -> Handler:
        """The service's handler with the control endpoints in front of it."""

        def handle(request: Request) -> Any:
            if request.path.startswith(PREFIX):
                return self.answer(request)
            return handler(request)

        return handle

    def answer(self, request: Request) -> Response:
        match request.method, request.path.removeprefix(PREFIX):
            case "GET", "health":
                return Response.json({"status": "ok"})
            case "GET", "counters":
                return Response.json(
                    {
                        name: {"operations": dict(hooks.operations), "classes": dict(hooks.classes)}
                        for name, hooks in self._hooks.items()
                    }
                )
            case "GET", "faults":
                return Response.json({"faults": self._plan.active()})
            case "POST", "faults":
                try:
                    fault = parse_fault(orjson.loads(request.body))
                except ValueError as error:
                    return Response.json({"error": {"code": 400, "message": str(error)}}, 400)
                self._plan.add(fault)
                return Response.json({"faults": self._plan.active()}, 201)
            case "DELETE", "faults":
                self._plan.clear()
                return Response.json({"faults": []})
            case _, "health" | "counters" | "faults":
                return Response.json({"error": {"code": 405, "message": "method not allowed"}}, 405)
            case _, name:
                return Response.json({"error": {"code": 404, "message": f"no control endpoint {name!r}"}}, 404)
