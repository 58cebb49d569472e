"""Lists of actions: order, first error, nested lists, conditions, resumption, clean-up."""

import pytest
from prometheus_client import REGISTRY

from ingestd.actions import executor
from ingestd.actions.executor import ActionFailed, run_actions
from ingestd.actions.plan import plan
from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.model.jobs import JobError
from ingestd.ports import HttpAnswer

INVALID = JobError("invalidQuery", "Syntax error: Unexpected end")


def push(text: str, **more):
    return {"Action": "push", "Request": {"Topic": "news", "Message": text}, **more}


def query(sql: str = "SELECT 1", **more):
    return {"Action": "query", "Request": {"SQL": sql, "Dest": "ds.out"}, **more}


def texts(batch) -> list[str]:
    return [message.data.decode() for message in batch.messages()]


def counted(action: str, outcome: str) -> float:
    return REGISTRY.get_sample_value("ingestd_actions_total", {"action": action, "outcome": outcome}) or 0.0


async def test_a_list_runs_in_order(batch):
    await batch.run(push("1"), push("2"), push("3"))
    assert texts(batch) == ["1", "2", "3"]


async def test_the_first_error_stops_the_list(batch):
    batch.warehouse.fails["query"] = INVALID
    before = counted("query", "failed")
    with pytest.raises(ActionFailed, match=r"step 3 \(query\).*Syntax error") as failed:
        await batch.run(push("1"), query(), push("3"))
    assert texts(batch) == ["1"]
    assert isinstance(failed.value.cause, BadInput) and failed.value.action == "query"
    assert counted("query", "failed") == before + 1


async def test_nested_lists_run_for_every_kind_of_action(batch):
    batch.settings = {"allowed_hosts": ("api.example",)}
    batch.warehouse.tables["ds.tmp"] = {}
    batch.upload("a.json")
    after = [push("after")]
    await batch.run(
        {"Action": "delete", "OnSuccess": after},
        {"Action": "drop", "Request": {"Table": "ds.tmp"}, "OnSuccess": after},
        {"Action": "call", "Request": {"URL": "https://api.example/x"}, "OnSuccess": after},
        {"Action": "insert", "Request": {"Dest": "ds.t", "Data": {"a": 1}}, "OnSuccess": after},
        push("itself", OnSuccess=after),
        query(OnSuccess=after),
    )
    assert texts(batch) == ["after"] * 4 + ["itself", "after", "after"]


async def test_on_failure_runs_once_with_the_error_and_the_error_goes_on(batch):
    batch.warehouse.fails["query"] = INVALID
    with pytest.raises(ActionFailed, match="step 2"):
        await batch.run(query(OnSuccess=[push("well")], OnFailure=[push("failed: $Error")]), push("never"))
    (text,) = texts(batch)
    assert text.startswith("failed: job ") and "Syntax error" in text


async def test_on_failure_is_not_repeated_when_the_list_is_run_again(batch):
    batch.warehouse.fails["query"] = JobError("notFound", "Not found: Table ds.src")
    actions = [query(OnFailure=[push("alarm")]), push("then")]
    for _ in range(2):
        with pytest.raises(ActionFailed) as failed:
            await batch.run(*actions)
        assert isinstance(failed.value.cause, Fatal)
    assert texts(batch) == ["alarm"]
    batch.warehouse.fails.clear()
    await batch.run(*actions)
    assert texts(batch) == ["then"]


async def test_a_failure_that_may_heal_leaves_without_a_verdict(batch):
    batch.warehouse.fails["query"] = JobError("backendError", "try again")
    with pytest.raises(ActionFailed) as failed:
        await batch.run(query(OnFailure=[push("alarm")]))
    assert failed.value.may_heal and texts(batch) == []
    with pytest.raises(ActionFailed):
        await batch.run(query(OnFailure=[push("alarm")]), last_try=True)
    assert texts(batch) == ["alarm"]


async def test_a_failing_on_failure_does_not_hide_the_first_error(batch):
    batch.warehouse.fails["query"] = INVALID
    with pytest.raises(ActionFailed, match="step 2"):
        await batch.run(query(OnFailure=[{"Action": "call", "Request": {"URL": "https://evil.example/"}}]))


async def test_a_bug_in_an_action_is_one_batchs_failure(batch, monkeypatch):
    async def broken(*_):
        raise KeyError("oops")

    monkeypatch.setitem(executor.ACTIONS, "push", executor.ACTIONS["push"].__class__(broken))
    with pytest.raises(ActionFailed) as failed:
        await batch.run(push("x"))
    assert isinstance(failed.value.cause, Fatal) and "KeyError" in str(failed.value)


async def test_an_action_whose_table_is_missing_is_skipped_with_its_subtree(batch):
    before = counted("push", "skipped")
    await batch.run(push("x", When={"Exists": "ds.none_$EventID"}, OnSuccess=[push("below")]), push("next"))
    assert texts(batch) == ["next"]
    assert counted("push", "skipped") == before + 1


async def test_the_condition_is_expanded_and_asked_when_the_action_runs(batch):
    made = query("SELECT 1")
    made["Request"]["Dest"] = "ds.t_117"
    await batch.run(made, push("there", When={"Exists": "ds.t_$EventID"}))
    assert texts(batch) == ["there"]


async def test_finished_steps_are_not_repeated_and_their_response_is_restored(batch):
    batch.settings = {"allowed_hosts": ("api.example",)}
    batch.http.answers = [HttpAnswer(200, {}, b'{"BatchID": 7}')]
    call = {"Action": "call", "Request": {"URL": "https://api.example/x"}}
    batch.faults.add(_failing_publish())
    with pytest.raises(ActionFailed) as failed:
        await batch.run(call, push("batch $Data.BatchID"))
    assert isinstance(failed.value.cause, Transient)
    batch.faults.clear()
    batch.progress.crash()
    await batch.run(call, push("batch $Data.BatchID"))
    assert texts(batch) == ["batch 7"]
    assert len(batch.http.asked) == 1


async def test_a_finished_jobs_nested_list_still_knows_the_job(batch):
    actions = [query("SELECT\n  42", OnSuccess=[push("$JobID read $JobSource")])]
    batch.faults.add(_failing_publish())
    with pytest.raises(ActionFailed):
        await batch.run(*actions)
    batch.faults.clear()
    await batch.run(*actions)
    assert texts(batch) == ["ds_orders--117_00002_query--dispatch read SELECT 42"]
    assert batch.warehouse.ran() == ["ds_orders--117_00002_query--dispatch"]


async def test_variables_come_from_the_batch_the_previous_answer_and_the_job(batch):
    batch.upload("a.json")
    batch.values = {"Data": "the batch's own"}
    batch.settings = {"allowed_hosts": ("api.example",)}
    batch.http.answers = [HttpAnswer(201, {}, b'{"x": 1}')]
    await batch.run(
        {"Action": "call", "Request": {"URL": "https://api.example/$EventID"}},
        push("$StatusCode $Data $JobID $JobSource"),
    )
    assert batch.http.asked[0]["url"] == "https://api.example/117"
    assert texts(batch) == ["201 the batch's own load-job gs://inbox/a.json"]


async def test_clean_up_runs_last_on_success_and_on_a_final_failure(batch):
    drop = {"Action": "drop", "Request": {"Table": "ds.tmp"}}
    batch.warehouse.tables["ds.tmp"] = {}
    await batch.run(push("x", When={"Exists": "ds.tmp"}), cleanup=[drop])
    assert texts(batch) == ["x"] and "ds.tmp" not in batch.warehouse.tables

    batch.progress.steps.clear()
    batch.warehouse.tables["ds.tmp"] = {}
    batch.warehouse.fails["query"] = INVALID
    with pytest.raises(ActionFailed):
        await batch.run(query(), cleanup=[drop])
    assert "ds.tmp" not in batch.warehouse.tables


async def test_clean_up_waits_while_the_list_may_be_resumed(batch):
    batch.warehouse.tables["ds.tmp"] = {}
    batch.warehouse.fails["query"] = JobError("backendError", "try again")
    drop = {"Action": "drop", "Request": {"Table": "ds.tmp"}}
    with pytest.raises(ActionFailed):
        await batch.run(query(), cleanup=[drop])
    assert "ds.tmp" in batch.warehouse.tables
    with pytest.raises(ActionFailed):
        await batch.run(query(), cleanup=[drop], last_try=True)
    assert "ds.tmp" not in batch.warehouse.tables


async def test_a_record_that_cannot_be_written_is_no_failure_of_the_action(batch):
    class Refusing:
        def finished(self, step):
            return False

        def response(self, step): ...

        async def record(self, step, outcome, response, *, durable):
            raise Fatal("the journal's bucket is gone")

    from dataclasses import replace

    steps = plan([push("x", OnFailure=[push("wrong")])])
    with pytest.raises(ActionFailed, match="journal"):
        await run_actions(replace(batch.context(), progress=Refusing()), steps.on_success)
    assert texts(batch) == ["x"]


async def test_an_earlier_life_failed_job_is_left_behind_for_a_new_attempt(batch):
    batch.warehouse.fails["query"] = JobError("accessDenied", "no")
    with pytest.raises(ActionFailed):
        await batch.run(query())
    batch.warehouse.fails.clear()
    await batch.run(query())
    stem = "ds_orders--117_00002_query"
    assert batch.warehouse.ran() == [f"{stem}--dispatch", f"{stem}_try2--dispatch"]


def _failing_publish():
    from ingestd.localcloud.faults import Fault, FaultKind

    return Fault("pubsub", "Publish", FaultKind.FAIL, status=503)


async def test_a_failing_clean_up_is_reported_only_when_the_list_did_well(batch):
    cleanup = [{"Action": "drop", "Request": {"Table": "$Wrong"}}, {"Action": "drop", "Request": {"Table": "ds.tmp"}}]
    batch.values = {"Wrong": "no table"}
    batch.warehouse.tables["ds.tmp"] = {}
    with pytest.raises(ActionFailed, match="drop"):
        await batch.run(push("x"), cleanup=cleanup)
    assert "ds.tmp" not in batch.warehouse.tables

    batch.warehouse.fails["query"] = INVALID
    with pytest.raises(ActionFailed, match="query"):
        await batch.run(push("x"), query(), cleanup=cleanup)
