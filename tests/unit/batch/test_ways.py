"""Which way a batch takes, in which steps, in which project: decided by the record, and kept."""

from dataclasses import replace
from typing import Any, cast

import pytest
from tests.support.records import SPLIT, batch_of, files, ruled

from ingestd.batch.content import Fate, Load, Progress, SetAside
from ingestd.batch.landing import landing_table
from ingestd.batch.outcome import abandoned
from ingestd.batch.phases import Phase
from ingestd.batch.pinned import HOME, UNMATCHED, Pinned, Pour, Published
from ingestd.batch.post_actions import rows_of
from ingestd.batch.record import Record
from ingestd.batch.stages.ready import choose, recount, settle
from ingestd.batch.steps import Way, branch_tables, steps_of, submitted_jobs, way_of
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobKind
from ingestd.model.preparation import BadFile, Output, Prepared
from ingestd.model.schema import Field, Type, schema_rest
from ingestd.rules.schema import Balancer
from ingestd.warehouse.slots import JobSlots


class Busy:
    """Slots that know how many jobs run where."""

    def __init__(self, **loads: int) -> None:
        self._loads = loads

    def in_flight(self, project: str, kind: JobKind) -> int:
        assert kind is JobKind.LOAD
        return self._loads.get(project, 0)


def slots(**loads: int) -> JobSlots:
    return cast("JobSlots", Busy(**loads))


UNIQUE = {"UniqueColumns": ["id"]}
FILES = {"SideInputs": [{"From": "gs://b/shops/*.csv", "Alias": "s", "On": "s.id = t.id"}]}


@pytest.mark.parametrize(
    ("dest", "more", "default", "way"),
    [
        ({}, {}, "spark", Way.DIRECT),
        ({"Transient": {"Dataset": "temp"}}, {}, "spark", Way.DIRECT),
        (UNIQUE, {}, "spark", Way.PREPARED),
        (UNIQUE, {}, "bigquery", Way.STATEMENTS),
        (UNIQUE, {"Engine": "bigquery"}, "spark", Way.STATEMENTS),
        (UNIQUE, {"Engine": "spark"}, "bigquery", Way.PREPARED),
        ({"Transient": {"Dataset": "temp", "Criteria": "id > 1"}}, {}, "bigquery", Way.STATEMENTS),
        ({"Merge": {"Keys": ["id"]}}, {}, "spark", Way.PREPARED),
        ({}, {"Merge": {"Format": "PARQUET"}}, "bigquery", Way.PREPARED),
        ({}, {"OnBadData": "quarantine rows"}, "bigquery", Way.PREPARED),
        ({}, {"OnBadData": "fail"}, "spark", Way.DIRECT),
        (FILES, {}, "bigquery", Way.PREPARED),
        ({"SideInputs": [{**FILES["SideInputs"][0], "From": "SELECT 1 AS id"}]}, {}, "bigquery", Way.STATEMENTS),
        ({"AllowFieldAddition": True}, {}, "spark", Way.PREPARED),
        ({"Schema": {"Drift": "discard_value"}}, {}, "spark", Way.DIRECT),
    ],
)
def test_only_what_needs_preparation_is_prepared(
    dest: dict[str, Any], more: dict[str, Any], default: str, way: Way
) -> None:
    assert way_of(ruled(dest, **more), default) is way


COUNT = [{"Action": "query", "Request": {"SQL": "SELECT COUNT(1) FROM ${TempTable}", "Dest": "ds.counted"}}]
NESTED = [{"Action": "query", "Request": {"SQL": "SELECT 1"}, "OnSuccess": COUNT}]
TEMP = {"Transient": {"Dataset": "temp"}}
JOINED = {"SideInputs": [{"From": "SELECT MAX(id) AS id FROM $TempTable", "Alias": "s", "On": "s.id = t.id"}]}


@pytest.mark.parametrize(
    ("dest", "more", "way"),
    [
        ({**UNIQUE, **TEMP}, {"OnSuccess": COUNT}, Way.STATEMENTS),
        ({**SPLIT, **TEMP}, {"OnSuccess": NESTED}, Way.STATEMENTS),
        ({**SPLIT, "TransientDataset": "temp"}, {"OnFailure": COUNT}, Way.STATEMENTS),
        ({**UNIQUE, **TEMP}, {"OnBlocked": COUNT}, Way.STATEMENTS),
        ({**JOINED, **TEMP}, {}, Way.STATEMENTS),
        # The author's word, or what only Spark can do, comes first; lint says what is in the table then.
        ({**UNIQUE, **TEMP}, {"OnSuccess": COUNT, "Engine": "spark"}, Way.PREPARED),
        ({**UNIQUE, **TEMP}, {"OnSuccess": COUNT, "Merge": {"Format": "PARQUET"}}, Way.PREPARED),
        ({**FILES, **TEMP}, {"OnSuccess": COUNT}, Way.PREPARED),
        ({**UNIQUE, **TEMP, "Schema": {"Drift": "discard_row"}}, {"OnSuccess": COUNT}, Way.PREPARED),
        # Nothing there reads it, or it has the same rows either way.
        ({**UNIQUE, **TEMP}, {}, Way.PREPARED),
        (UNIQUE, {"OnSuccess": COUNT}, Way.PREPARED),
        (TEMP, {"OnSuccess": COUNT}, Way.DIRECT),
        ({**TEMP, "AllowFieldAddition": True}, {"OnSuccess": COUNT}, Way.PREPARED),
    ],
)
def test_rows_are_shaped_by_statements_where_the_rule_reads_them_as_they_were_loaded(
    dest: dict[str, Any], more: dict[str, Any], way: Way
) -> None:
    batch = settle(ruled(dest, **more), "spark", slots())
    assert way_of(batch, "spark") is way


def test_a_batch_that_spark_has_begun_stays_with_spark_though_its_rule_names_the_transient_table() -> None:
    """An earlier version chose by the setting alone, and jobs of both engines would load twice."""
    batch = ruled({**UNIQUE, **TEMP}, OnSuccess=COUNT)
    before = replace(batch, placement=replace(batch.placement, engine="spark", settled=True))
    again = settle(Record.from_json(before.to_json()), "spark", slots())
    assert way_of(again, "spark") is Way.PREPARED


def test_the_engine_that_was_chosen_by_default_stays_when_the_default_changes() -> None:
    settled = settle(ruled(UNIQUE), "spark", slots())
    assert (settled.placement.engine, settled.placement.settled) == ("spark", True)
    stored = Record.from_json(settled.to_json())
    again = settle(stored, "bigquery", slots())
    assert way_of(again, "bigquery") is Way.PREPARED


def test_statements_read_from_a_table_of_the_batchs_own_and_keep_doing_so_when_replayed() -> None:
    settled = settle(ruled(UNIQUE), "bigquery", slots())
    assert settled.lands_apart
    failed = replace(settled, phase=Phase.FAILED, progress=Progress(aside={0: SetAside(Fate.FAILED, "x")}))
    assert settle(failed.reopened(failed.created), "spark", slots()).lands_apart


def test_a_transient_table_lies_in_the_project_and_dataset_that_the_rule_names() -> None:
    settled = settle(ruled({"Transient": {"Dataset": "temp", "ProjectID": "other"}}), "spark", slots())
    assert str(landing_table(settled)) == "other.temp.t_17"
    assert settled.load_job().project == "other"


@pytest.mark.parametrize(
    ("strategy", "most", "busy", "expected"),
    [
        ("fallback", 2, {"a": 2, "b": 1}, {"b"}),
        ("fallback", 2, {}, {"a"}),
        ("fallback", 1, {"a": 1, "b": 1, "c": 1}, {"a", "b", "c"}),
        ("rand", 0, {"a": 9}, {"a", "b", "c"}),
        ("rand", 1, {"a": 1, "c": 1}, {"b"}),
    ],
)
def test_a_balancer_goes_by_live_job_counts(strategy: str, most: int, busy: dict[str, int], expected: set[str]) -> None:
    balancer = Balancer(project_ids=("a", "b", "c"), strategy=strategy, max_load_jobs=most)
    assert {choose(balancer, slots(**busy), str(seed)) for seed in range(50)} == expected


async def test_a_balancer_counts_again_before_it_calls_a_project_full() -> None:
    asked: list[str] = []

    class Forgetful(Busy):
        async def ask(self, project: str, kind: JobKind) -> None:
            asked.append(project)

    balanced = {"Dataset": "temp", "Balancer": {"ProjectIDs": ["a", "b"], "MaxLoadJobs": 1}}
    await recount(ruled({"Transient": balanced}), cast("JobSlots", Forgetful(a=1)))
    assert asked == ["a"]


def test_the_project_that_was_chosen_is_in_the_record() -> None:
    balanced = {"Dataset": "temp", "Balancer": {"ProjectIDs": ["a", "b"], "Strategy": "fallback", "MaxLoadJobs": 1}}
    first = settle(ruled({"Transient": balanced}), "spark", slots(a=1))
    assert (first.placement.project, first.placement.settled) == ("b", True)
    assert settle(Record.from_json(first.to_json()), "spark", slots(b=1)).placement.project == "b"


def test_a_split_counts_what_fits_nowhere_before_it_fills_its_tables() -> None:
    steps = steps_of(ruled(SPLIT))
    assert [(step.branch, step.target.table) for step in steps] == [(UNMATCHED, "t"), (0, "one"), (1, "two")]
    keep = {"Schema": {"Split": {**SPLIT["Schema"]["Split"], "Unmatched": "keep"}}}
    assert [step.branch for step in steps_of(ruled(keep))] == [0, 1, HOME]


def test_two_mappings_never_replace_the_same_table() -> None:
    mapping = [{"When": "a", "Then": "ds.one"}, {"When": "b", "Then": "ds.one"}]
    twice = {"Override": True, "Schema": {"Split": {"Mapping": mapping}}}
    with pytest.raises(BadInput, match="replace the same table"):
        branch_tables(ruled(twice))


def test_a_record_remembers_what_was_prepared_and_published() -> None:
    made = Prepared(
        attempt=3,
        format="PARQUET",
        schema=(Field("id", Type.INT64),),
        outputs=(Output(HOME, ("gs://s/1", "gs://s/2"), 5, 100), Output(0, ("gs://s/3",), 2, 10)),
        bad=(BadFile(1, "line 3", rows=2, loaded=True),),
        rows_left_out={"duplicate": 4},
        rejected=("gs://s/bad",),
        load_options={"parquetOptions": {"enableListInference": True}},
    )
    pinned = Pinned(made, (Pour(0, 0, 2, 4, rows=5, size=100), Pour(1, 0, 1, 5)))
    progress = Progress(
        jobs=5, publishing=2, published=(Published(HOME, "p.ds.t", 5, "job"),), preparing=3, pinned=pinned
    )
    stored = Record.from_json(batch_of(2, progress=progress).to_json())
    assert stored.progress == progress


def test_a_batch_that_is_given_up_says_which_tables_have_their_rows_and_a_replay_leaves_them_alone() -> None:
    done = (Published(0, "p.ds.one", 4, "job"), Published(UNMATCHED, "p.ds.t", 1, "job2"))
    half = ruled({**SPLIT, "Transient": {"Dataset": "temp"}}, Engine="bigquery")
    half = replace(half, progress=Progress(loads=(Load(1, (0, 1), 9, 9),), jobs=1, published=done))
    given_up = abandoned(half, "two is not there")
    assert given_up.phase is Phase.FAILING
    assert given_up.error == "two is not there; these tables have got their rows: p.ds.one (4 rows)"
    assert given_up.failed_files == files(2)
    again = given_up.enter(Phase.FAILED).reopened(given_up.created)
    assert again.progress.has(0)
    assert not again.progress.has(1)
    assert again.progress.publishing == 2, "the old jobs' ids are used up"


def test_every_job_of_a_batch_has_its_task_dropped() -> None:
    apart = ruled({**SPLIT, "Transient": {"Dataset": "temp"}}, Engine="bigquery")
    apart = replace(apart, progress=Progress(jobs=2, publishing=2))
    names = [job.job_id for job in submitted_jobs(apart)]
    assert len(names) == len(set(names)) == 2 + 2 * 4


GIVEN = [Field("b", Type.STRING), Field("a", Type.STRING)]


@pytest.mark.parametrize(
    ("dest", "source", "lenient", "columns"),
    [
        ({}, "CSV", False, True),
        ({"IgnoreUnknownValues": True}, "NEWLINE_DELIMITED_JSON", True, True),
        ({"Schema": {"Drift": "discard_value"}}, "PARQUET", True, True),
        ({"AllowFieldAddition": True}, "PARQUET", True, False),
        ({"AllowFieldAddition": True}, "CSV", True, True),
    ],
)
def test_actions_read_files_as_their_load_has_read_them(
    dest: dict[str, Any], source: str, lenient: bool, columns: bool
) -> None:
    batch = ruled(dest)
    batch = replace(batch, load={**batch.load, "sourceFormat": source, "schema": schema_rest(GIVEN)})
    rows = rows_of(batch)
    assert rows.prepared is None
    assert bool(rows.load.get("ignoreUnknownValues")) is lenient
    assert list(rows.schema) == (GIVEN if columns else [])


def test_a_prepared_batch_without_rows_has_no_files_for_its_actions() -> None:
    batch = ruled(UNIQUE)
    prepared = Prepared(1, "PARQUET", ({"name": "id", "type": "INTEGER"},), ())
    rows = rows_of(replace(batch, progress=replace(batch.progress, pinned=Pinned(prepared))))
    assert rows.prepared == ()
