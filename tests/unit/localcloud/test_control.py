"""The local cloud's own endpoints: faults, counters, health."""

from typing import Any

import orjson
import pytest

from ingestd.localcloud.control import Control, InvalidFaultError, parse_fault
from ingestd.localcloud.faults import FaultInjected, FaultKind, FaultPlan, Hooks
from ingestd.localcloud.http import Request, Response


def request(method: str, path: str, body: object = None) -> Request:
    return Request(method, path, "", {}, b"" if body is None else orjson.dumps(body))


@pytest.fixture
def hooks() -> Hooks:
    return Hooks("storage", FaultPlan())


@pytest.fixture
def control(hooks: Hooks) -> Control:
    return Control(hooks.plan, {"storage": hooks})


def test_a_posted_fault_hits_the_service(control: Control, hooks: Hooks) -> None:
    fault = {"service": "storage", "method": "objects.*", "kind": "fail", "status": 429, "times": 1}
    assert control.answer(request("POST", "/_ingestd/faults", fault)).status == 201
    with pytest.raises(FaultInjected) as caught, hooks.operation("objects.get"):
        pytest.fail("the operation went ahead")
    assert caught.value.fault.status == 429
    with hooks.operation("objects.get"):
        pass  # it was for one time only


def test_clearing_ends_every_fault(control: Control, hooks: Hooks) -> None:
    control.answer(request("POST", "/_ingestd/faults", {"service": "*", "method": "*", "kind": "fail"}))
    assert len(orjson.loads(control.answer(request("GET", "/_ingestd/faults")).body)["faults"]) == 1
    control.answer(request("DELETE", "/_ingestd/faults"))
    assert orjson.loads(control.answer(request("GET", "/_ingestd/faults")).body)["faults"] == []
    with hooks.operation("objects.get"):
        pass


def test_counters_show_operations_and_billing_classes(control: Control, hooks: Hooks) -> None:
    with hooks.operation("objects.insert", cost="A"):
        pass
    shown = orjson.loads(control.answer(request("GET", "/_ingestd/counters")).body)
    assert shown == {"storage": {"operations": {"objects.insert": 1}, "classes": {"A": 1}}}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "JSON object"),
        ({"method": "*", "kind": "fail"}, "'service' is missing"),
        ({"service": "stroage", "method": "*", "kind": "fail"}, "unknown service 'stroage'"),
        ({"service": "*", "method": "*", "kind": "explode"}, "unknown kind 'explode'"),
        ({"service": "*", "method": "*", "kind": "fail", "statuss": 500}, "unknown field 'statuss'"),
        ({"service": "*", "method": "*", "kind": "fail", "status": "500"}, "'status' has the wrong type"),
        ({"service": "*", "method": "*", "kind": "fail", "status": 200}, "error status"),
        ({"service": "*", "method": "*", "kind": "fail", "times": 0}, "at least 1"),
        ({"service": "*", "method": "*", "kind": "delay"}, "needs 'seconds'"),
    ],
)
def test_a_fault_that_could_not_work_is_refused_with_the_reason(document: Any, complaint: str) -> None:
    with pytest.raises(InvalidFaultError, match=complaint):
        parse_fault(document)


def test_a_refused_fault_answers_400(control: Control) -> None:
    assert control.answer(request("POST", "/_ingestd/faults", {"service": "x"})).status == 400
    assert control.answer(Request("POST", "/_ingestd/faults", "", {}, b"{")).status == 400


def test_defaults_are_an_unavailable_service_until_cleared() -> None:
    fault = parse_fault({"service": "pubsub", "method": "Pull", "kind": "fail"})
    assert (fault.kind, fault.status, fault.times, fault.resource) == (FaultKind.FAIL, 503, None, "*")


def test_other_paths_reach_the_service_itself(control: Control) -> None:
    handle = control.mounted_on(lambda request: Response(299, request.path.encode()))
    assert handle(request("GET", "/storage/v1/b/_ingestd")).status == 299  # type: ignore[union-attr]
    assert handle(request("GET", "/_ingestd/health")).status == 200  # type: ignore[union-attr]
    assert handle(request("GET", "/_ingestd/nonsense")).status == 404  # type: ignore[union-attr]
    assert handle(request("PUT", "/_ingestd/faults")).status == 405  # type: ignore[union-attr]
