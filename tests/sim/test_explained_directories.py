"""`explain` of success files: a dry run before the upload, and never another answer than what the daemon does."""

from typing import Any

import orjson
from tests.support.sim.directories import batch, convention, explain, idle, rows
from tests.support.sim.names import DATASET, PROJECT, TRIGGER
from tests.support.sim.stories import Simulate
from tests.support.sim.world import World

SUCCESS = f"{DATASET}/dummy/b/_SUCCESS"


def put(world: World, name: str, content: dict[str, Any] | str = "") -> str:
    data = content.encode() if isinstance(content, str) else orjson.dumps(content)
    world.storage.write(TRIGGER, name, data, "application/octet-stream")
    return f"gs://{TRIGGER}/{name}"


def test_a_success_file_below_backlog_is_ignored_and_explained_as_ignored(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        world.upload(f"{DATASET}/dummy/_backlog/b/f001.json", {"id": 1, "name": "x"})
        for folder in ("_backlog/b", "_temporary/0", ".staging", "_config"):
            put(world, f"{DATASET}/dummy/{folder}/_SUCCESS")
            told = await explain(world, f"{DATASET}/dummy/{folder}/_SUCCESS")
            assert told.verdict.startswith(f"ignored: success files below '{folder.partition('/')[0]}' mean nothing")
            assert told.plan == told.history == []
        with world.daemon(**convention()):
            await world.until(lambda: idle(world))
        assert rows(world) == []
        assert world.record() == []

    simulate(story, plain=True)


def test_a_dry_run_is_what_the_upload_then_does(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        root = put(world, "_config/load.json", {"maxBadRecords": 5, "labels": {"my.team": "data", "level": "root"}})
        own = put(world, f"{DATASET}/dummy/_config/load.json", {"maxBadRecords": 0, "labels": {"level": "table"}})
        batch(world, "dummy/b", 1, 2, 3, success=False)
        world.upload(f"{DATASET}/dummy/b/_metadata", {"id": 666, "name": "x"})
        told = await explain(world, SUCCESS)
        assert told.found is None
        assert told.verdict == "a success file that does not exist: a dry run"
        assert told.directory is not None
        assert told.directory.why_not == ""
        dry = told.to_json()["directory"]
        assert dry["destination"] == f"{PROJECT}.{DATASET}.dummy"
        assert dry["origins"] == {
            "writeDisposition": "default",
            "maxBadRecords": own,
            "sourceFormat": "the files' names",
            "sourceUris": "the files of the directory",
            "destinationTable.projectId": "settings",
            "destinationTable.datasetId": "the path",
            "destinationTable.tableId": "the path",
            "labels.my.team": root,
            "labels.level": own,
        }
        assert f"configured by {root}#" in "\n".join(told.plan)
        assert {f"  maxBadRecords: 0  ({own})", f'  labels.my.team: "data"  ({root})'} < set(told.plan)
        assert any("left out (hidden" in step for step in told.plan)
        with world.daemon(**convention()):
            put(world, SUCCESS)
            await world.until(lambda: idle(world))
        assert world.plain is not None
        (job,) = world.plain.known.values()
        assert job.configuration["load"] == {**dry["load"], "sourceUris": dry["source_uris"]}
        assert dry["labels"].items() <= job.configuration["labels"].items()
        after = await explain(world, SUCCESS)
        assert (after.verdict, [one.phase for one in after.history]) == ("a success file", ["done"])

    simulate(story, plain=True)


def test_a_dry_run_names_the_file_of_every_part_that_several_files_say(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("other")
        root = put(world, "_config/load.json", {"csvOptions": None, "hivePartitioningOptions": {"mode": "AUTO"}})
        own = put(world, f"{DATASET}/dummy/_config/load.json", {
            "destinationTable": {"tableId": "other"}, "csvOptions": None,
            "hivePartitioningOptions": {"sourceUriPrefix": f"gs://{TRIGGER}/{DATASET}/dummy"},
        })  # fmt: skip
        world.upload(f"{DATASET}/dummy/b/dt=2024-05-01/f.json", {"id": 1, "name": "x"})
        told = (await explain(world, SUCCESS)).to_json()["directory"]
        assert told["why_not"].startswith(f"{own}: csvOptions")
        for name in ("_config/load.json", f"{DATASET}/dummy/_config/load.json"):
            document = orjson.loads(world.storage.read(TRIGGER, name))
            put(world, name, {key: value for key, value in document.items() if key != "csvOptions"})
        told = (await explain(world, SUCCESS)).to_json()["directory"]
        assert told["why_not"] == ""
        origins = told["origins"]
        assert origins["hivePartitioningOptions.mode"] == root
        assert origins["hivePartitioningOptions.sourceUriPrefix"] == own
        assert origins["destinationTable.tableId"] == own
        assert origins["destinationTable.datasetId"] == "the path"

    simulate(story, plain=True)


def test_a_dry_run_shows_the_sql_that_would_run_and_where_it_is_from(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        sql = put(world, f"{DATASET}/dummy/_config/bq_transform.sql", "INSERT {dest_dataset}.{dest_table}\nSELECT 1")
        put(world, f"{DATASET}/dummy/_config/external.json", {"sourceFormat": "NEWLINE_DELIMITED_JSON"})
        batch(world, "dummy/b", 1, success=False)
        told = await explain(world, SUCCESS)
        assert told.directory is not None
        assert told.to_json()["directory"]["sql"] == f"INSERT `{PROJECT}`.{DATASET}.dummy\nSELECT 1"
        assert told.plan[-2:] == [f"  INSERT `{PROJECT}`.{DATASET}.dummy", "  SELECT 1"]
        assert any(f"dummy by {sql}" in step for step in told.plan)
        assert told.directory.why_not == ""  # the table is the query's to make
        off = await explain(world, SUCCESS, **convention(transform_sql=False))
        assert off.directory is not None
        assert "transformations are switched off" in off.directory.why_not

    simulate(story, plain=True)


def test_a_dry_run_says_why_it_would_not_load(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        async def why(name: str, **more: Any) -> str:
            told = await explain(world, name, **more)
            assert told.directory is not None
            assert told.directory.why_not in " ".join(told.plan)
            return told.directory.why_not

        assert await why(SUCCESS) == "there are no files to load beside it"
        batch(world, "dummy/b", 1, 2, 3, success=False)
        assert "dummy does not exist; create it, or let the load do so" in await why(SUCCESS)
        world.create_table("dummy")
        assert await why(SUCCESS) == ""
        assert "could be a date or a batch id" in await why(f"{DATASET}/dummy/2024-05-01/_SUCCESS")
        assert "names no dataset and table" in await why(f"{DATASET}/_SUCCESS")
        assert "allowed_datasets" in await why(SUCCESS, **convention(allowed_datasets=["sales"]))
        world.upload("nowhere/t/f.json", {"id": 1, "name": "x"})
        assert "dataset sim-project.nowhere does not exist" in await why("nowhere/t/_SUCCESS")
        broken = put(world, f"{DATASET}/dummy/_config/load.json", "{")
        assert (await why(SUCCESS)).startswith(broken)

    simulate(story, plain=True)


def test_a_dry_run_tells_of_several_jobs_and_of_ordered_tables(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        order = put(world, f"{DATASET}/dummy/_config/ORDERME")
        batch(world, "dummy/b", 1, 2, 3, success=False)
        told = await explain(world, SUCCESS, jobs={"max_files": 2})
        assert "in 2 load jobs into a staging table, published by one copy" in told.plan
        assert told.plan[-1] == f"batches of its table are ordered ({order}): it would take its turn in their queue"

    simulate(story, plain=True)


def test_what_a_directory_leaves_out_is_explained_as_left_out(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        batch(world, "dummy/b", 1)
        world.upload(f"{DATASET}/dummy/b/_metadata", {"id": 1, "name": "x"})
        told = await explain(world, f"{DATASET}/dummy/b/_metadata")
        assert told.verdict.startswith(f"left out of the directory that gs://{TRIGGER}/{SUCCESS} completes: hidden")
        told = await explain(world, f"{DATASET}/dummy/b/f001.json")
        assert told.verdict == f"part of the directory that gs://{TRIGGER}/{SUCCESS} completes"

    simulate(story, plain=True)


def test_a_success_file_is_the_conventions_although_a_rule_matches_its_name(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        world.rule("all.json", {"When": {"Prefix": f"/{DATASET}/"}, "Dest": {"Table": f"{DATASET}.dummy"}})
        batch(world, "dummy/b", 1, success=False)
        assert (await explain(world, SUCCESS)).verdict == "a success file that does not exist: a dry run"
        assert (await explain(world, f"{DATASET}/dummy/b/f001.json")).rule is not None

    simulate(story, plain=True)
