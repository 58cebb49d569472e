"""`explain` tells where a file is at every moment, and `replay` gives what is stuck another try."""

import asyncio

import pytest
from tests.support.bindings import CoreStore, CoreWarehouse
from tests.support.rule_documents import FILE, ROWS, alone, together
from tests.support.sim.journal import journal, replay
from tests.support.sim.names import DATASET, OPS, PROJECT, TRIGGER
from tests.support.sim.stories import LOADED, Simulate, name, upload, upload_all
from tests.support.sim.world import Fate, World

from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.store import WindowStore
from ingestd.intake.refusals import Refusals
from ingestd.ledger.explain import Explainer, Explanation
from ingestd.ledger.reading import LoadStateReader
from ingestd.ledger.replay import Selection, replays
from ingestd.ledger.unloaded import Whereabouts
from ingestd.model.errors import Transient
from ingestd.model.objects import EPOCH, ObjectRef
from ingestd.model.tables import parse_table
from ingestd.rules.bucket import rule_source
from ingestd.rules.loading import RuleLoader


async def explain(world: World, name: str) -> Explanation:
    store, settings = CoreStore(world.storage, world.clock), world.settings()
    loader = RuleLoader(rule_source(settings.rules.url, store), world.clock)
    book = await loader.refresh()
    explainer = Explainer(
        store,
        CoreWarehouse(world.bigquery, world.clock),
        journal(world),
        world.clock,
        project=PROJECT,
        refusals=Refusals(store, settings.errors),
        windows=WindowStore(store, settings.batches),
        pacing=Pacing(store, settings.journal / "pace", None, world.clock),
        whereabouts=Whereabouts(store, settings),
    )
    return await explainer.explain(ObjectRef(TRIGGER, name), book.route(name))


def test_a_file_is_explained_before_during_and_after_its_load(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(True))
        generation = world.upload(FILE, *ROWS)
        before = await explain(world, FILE)
        assert before.found is not None
        assert before.verdict == "taken by rule rule"
        assert any("bqtail.dummy" in step for step in before.plan)
        assert before.history == []
        with world.daemon():
            await world.until(lambda: world.objects("tasks/") != [])
            (during,) = (await explain(world, FILE)).history
            assert (during.phase, during.generation) == ("accepted", generation)
            await world.settled()
        after = await explain(world, FILE)
        assert after.found is None
        assert [(one.phase, one.rows) for one in after.history] == [("done", 2)]
        assert (await explain(world, "nobody/wants.this")).verdict == "no rule matches"

    simulate(story, job_latency=5.0)


def test_a_file_in_a_window_is_explained(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together())
        with world.daemon(windows={"flush_after": "1s"}):
            name, _ = upload(world, 0)
            await asyncio.sleep(3)
            waiting = await explain(world, name)
            assert any("waits in it" in step for step in waiting.plan), waiting.plan
            await world.settled()
        assert [one.phase for one in (await explain(world, name)).history] == ["done"]

    simulate(story)


def test_a_file_that_was_set_aside_is_not_taken_for_loaded(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        place = f"gs://{OPS}/bad/${{Date}}"
        world.prepared(together(True, CorruptedFileURL=place))
        with world.daemon():
            upload_all(world, 2, corrupted=(1,), invalid=(2,))
            await world.settled()
        (record,) = world.record()
        assert (record["Status"], record["Rows"]) == ("done", 2)

        (good,) = (await explain(world, name(0))).history
        assert (good.fate, good.unloaded) == ("loaded", None)
        assert (good.files, good.files_loaded, good.files_set_aside) == (4, 2, 2)
        (odd,) = (await explain(world, name(2))).history
        assert odd.fate == "invalid_schema"
        assert odd.unloaded is not None
        assert odd.unloaded.reason.startswith("row 2, column id: ")
        (moved,) = [one for one in world.objects("bad/") if one.endswith(name(2))]
        assert moved == f"bad/{world.clock.now():%Y%m%d}/{name(2)}"
        kept = f"gs://{OPS}/{moved}"
        assert (odd.unloaded.kept_url, odd.unloaded.reason_url) == (kept, f"{kept}.reason.json")
        folder = kept.removesuffix(f"/{name(2)}")
        source = f"gs://{TRIGGER}/{name(2)}"
        assert f"ingestd replay --quarantine {source} --folder {folder}" in odd.unloaded.remedy
        assert f"upload it again to {source}" in odd.unloaded.remedy

        await CoreStore(world.storage, world.clock).delete(ObjectRef(OPS, moved))
        (gone,) = (await explain(world, name(2))).history
        assert gone.unloaded is not None
        assert (gone.unloaded.kept_url, gone.unloaded.reason_url) == ("", "")
        assert "--quarantine" not in gone.unloaded.remedy, "there is nothing to bring back"

    simulate(story)


def test_a_file_that_failed_is_found_where_its_rule_moved_it(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        move = {"Action": "move", "Request": {"DestURL": "gs://${ProjectID}-ops/failed"}}
        world.rule("rule.json", {"When": {"Prefix": "/data/"}, "Dest": {"Table": "bqtail.dummy"}, "OnFailure": [move]})
        world.rule("kept.json", {"When": {"Prefix": "/kept/"}, "Dest": {"Table": "bqtail.dummy"}})
        with world.daemon():
            for name in (FILE, "kept/a.json"):
                world.storage.write(TRIGGER, name, b"no JSON", "application/json")
            await world.settled()
        (moved,) = (await explain(world, FILE)).history
        assert moved.unloaded is not None
        assert moved.unloaded.kept_url == f"gs://{PROJECT}-ops/failed/{FILE}"
        assert moved.unloaded.remedy == f"mend the file and upload it again to gs://{TRIGGER}/{FILE}"
        (kept,) = (await explain(world, "kept/a.json")).history
        assert kept.unloaded is not None
        assert kept.unloaded.kept_url == f"gs://{TRIGGER}/kept/a.json"
        assert f"ingestd replay {kept.event_id}" in kept.unloaded.remedy

    simulate(story)


def test_a_blocked_batch_is_tried_at_once_when_replayed(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.rule("rule.json", {"When": {"Prefix": "/data/"}, "Dest": {"Table": "bqtail.dummy"}})
        with world.daemon(recovery={"lease": "20s", "sweep_every": "5s", "retry_first": "1h", "retry_longest": "1h"}):
            world.upload(FILE, *ROWS)
            await world.until(lambda: any(record["RetryAt"] for record in world.record("Running")))
            (blocked,) = (await explain(world, FILE)).history
            assert "does not exist" in blocked.error
            world.create_table("dummy")
            (seen,) = await replay(world, Selection([ObjectRef(TRIGGER, FILE)]), dry_run=True)
            assert seen.what == "waits"
            assert any(record["RetryAt"] for record in world.record("Running")), "a dry run changes nothing"
            assert await replay(world, Selection(rule="another")) == []
            (replayed,) = await replay(world, Selection([ObjectRef(TRIGGER, FILE)]))
            assert "waiting" in replayed.what
            notes = world.settings().journal / "Replays"
            (note,) = await replays(CoreStore(world.storage, world.clock), notes, replayed.event_id)
            assert (note.by, note.why) == ("ann", "the table is there now")
            await world.settled(limit=60)
        assert world.rows() == LOADED

    simulate(story)


def test_a_failed_batch_is_opened_again_when_replayed(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(False))
        with world.daemon():
            world.upload(FILE, {"id": 1, "name": "a", "more": True})
            await world.settled()
            (failed,) = world.record()
            assert failed["Status"] == "failed"
            schema = {"fields": [{"name": name, "type": "STRING"} for name in ("id", "name", "more")]}
            world.bigquery.metadata.delete_table(PROJECT, DATASET, "dummy")
            world.create_table("dummy", schema)
            (replayed,) = await replay(world, Selection(event_ids=[failed["EventID"]]))
            assert "opened again" in replayed.what
            await world.settled()
        assert world.rows() == [("1", "a", "true")]
        assert [record["Status"] for record in world.record()] == ["done"]

    simulate(story)


def told(world: World) -> set[tuple[str, ...]]:
    """Batch, revision and state of every row of the load-state table."""
    page = world.bigquery.tabledata.list_rows(PROJECT, "bigquery_loads", "serverless_bq_loads", {})
    return {tuple(cell["v"] for cell in row["f"][:3]) for row in page.get("rows", ())}


def test_a_batch_s_end_is_told_whatever_effect_the_daemon_dies_after(simulate: Simulate) -> None:
    on = {"load_state": {"enabled": True, "flush_every": "3s"}}

    def lived(fate: Fate) -> Fate:
        async def story(world: World) -> None:
            world.prepared(alone(False))
            with world.daemon(fate, **on) as first:
                world.upload(FILE, *ROWS)
                await world.until(lambda: not first.alive or (world.quiet() and world.record() != []))
            with world.daemon(**on):
                await world.settled()
            (record,) = world.record()
            final = {row for row in told(world) if row[2] == "done"}
            assert final == {(record["EventID"], str(record["Revision"]), "done")}, fate.log

        simulate(story)
        return fate

    whole = lived(Fate()).log
    finished = next(at for at, effect in enumerate(whole) if "journal/Done/" in effect)
    assert any("insert_rows" in effect for effect in whole[finished:])
    for effects in range(finished + 1, len(whole) + 1):
        lived(Fate(dies_after=effects))


def test_a_load_state_that_does_not_answer_is_trouble_that_passes(simulate: Simulate) -> None:
    """Commands and sweeps know what to do with it; a bare time-out would end them with a traceback."""

    async def story(world: World) -> None:
        reader = LoadStateReader(CoreWarehouse(world.bigquery, world.clock), parse_table("bqtail.state"), world.clock)
        with pytest.raises(Transient, match="not done after"):
            await reader.loaded(["gs://a/b#1"], since=EPOCH)

    simulate(story, plain=True, job_latency=600.0)
