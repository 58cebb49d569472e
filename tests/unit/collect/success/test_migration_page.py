"""The page for users of gcs_ocn_bq_ingest is complete and true: every row is executed here, or held by a named test."""

import ast
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import typer
from tests.support.places import ROOT
from tests.unit.collect.success.directories import listed, loaded, made, names, planned
from tests.unit.collect.success.migration_page import PAGE, PROVEN, SURFACE, VERDICTS, Row, read_page
from typer.main import get_command

from ingestd.cli.backfill import backfill
from ingestd.collect.success.configuration import BadConfig, Transform, load_options, read_object
from ingestd.collect.success.destination import NoDestination, Overrides, infer
from ingestd.collect.success.labels import job_labels
from ingestd.collect.success.planning import destination_of
from ingestd.collect.success.queue import OrderedTable, order_of
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.settings import Convention, Settings
from ingestd.settings_loader import load_settings

ROWS = read_page()
ALL = pytest.mark.parametrize("row", ROWS, ids=[f"{row.section}: {row.what}" for row in ROWS])


def section(title: str) -> Any:
    rows = [row for row in ROWS if row.section == title]
    return pytest.mark.parametrize("row", rows, ids=[row.what for row in rows])


@pytest.mark.parametrize("title", SURFACE)
def test_the_page_names_all_that_the_old_tool_has_and_nothing_else(title: str) -> None:
    told = {name for row in ROWS if row.section == title for name in row.names}
    assert told - {"backfill.py"} == set(SURFACE[title])


def test_the_page_has_no_other_tables() -> None:
    assert {row.section for row in ROWS} == SURFACE.keys()
    assert len({(row.section, row.what) for row in ROWS}) == len(ROWS)


@ALL
def test_every_row_has_a_verdict_and_says_how_or_why(row: Row) -> None:
    assert row.verdict in VERDICTS
    assert row.here or row.verdict == "same"


@cache
def _tests(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions)


EXECUTED: set[tuple[str, str]] = set()
"""Rows that a test of this module runs; filled below."""


def executes(title: str, *whats: str) -> Callable[[Any], Any]:
    EXECUTED.update((title, what) for what in whats or [row.what for row in ROWS if row.section == title])
    return lambda test: test


@ALL
def test_every_row_is_executed_here_or_held_by_tests_that_exist(row: Row) -> None:
    tests = PROVEN.get(row.section, {}).get(row.what, ())
    assert tests or (row.section, row.what) in EXECUTED
    for one in tests:
        path, _, name = one.partition("::")
        assert name in _tests(path), one


def test_every_proof_is_of_a_row() -> None:
    proven = {(title, what) for title, whats in PROVEN.items() for what in whats}
    assert (proven | EXECUTED) - {(row.section, row.what) for row in ROWS} == set()


SAMPLES = {
    "DESTINATION_REGEX": r"(?P<dataset>\w+)/(?P<table>\w+)",
    "MAX_BATCH_BYTES": "1000",
    "MAX_RETRIES_ON_BIGQUERY_ERROR": "6",
    "FAIL_ON_ZERO_DML_ROWS_AFFECTED": "no",
    "ORDER_PER_TABLE": "yes",
    "WAIT_FOR_VALIDATION": "on",
    "BQ_LOAD_STATE_TABLE": "ops.loads",
}
SET_TO = {"1000": 1000, "6": 7, "no": False, "yes": True, "on": True}


@executes("Environment variables")
@section("Environment variables")
def test_a_variable_does_what_the_page_says(row: Row, tmp_path: Any) -> None:
    (name,) = row.names
    if row.verdict == "refused":
        assert row.here.startswith("no effect, which the log says by name: ")
        reason = row.here.partition("by name: ")[2]
        assert Settings.idle_variables[name].startswith(reason)
        return
    value = SAMPLES.get(name, "sample")
    (setting,) = re.findall(r"^`([a-z_.]+)`", row.here)
    named_in_settings = name != "GCP_PROJECT"  # which counts where they name none
    variables = {name: value}
    found: Any = loaded("", tmp_path, **variables) if named_in_settings else load_settings(Settings, None, variables)
    for part in setting.split("."):
        found = getattr(found, part)
    assert found == SET_TO.get(value, value)
    assert Settings.other_variables[name] == setting


def test_no_variable_is_honoured_that_the_page_does_not_name() -> None:
    told = {name for row in ROWS if row.section == "Environment variables" for name in row.names}
    assert told == {*Settings.other_variables, *Settings.idle_variables}


@executes("Objects", "`_claimed_…`", "names with `*`", "`_metadata`, `_temporary/`, other names with a leading `_`")
def test_what_is_no_data_and_what_is() -> None:
    objects = ("a.csv", "_claimed__SUCCESS_created_at_1.5", "_metadata", "_temporary/0/x.csv", "_k=v/b.csv")
    assert names(listed(*(f"ds/t/x/{name}" for name in objects))) == ["_k=v/b.csv", "a.csv"]
    with pytest.raises(BadInput, match="wildcard"):
        planned("a*.csv")
    with pytest.raises(BadInput, match="slashes in a row"):
        planned("x//a.csv")


@executes("Configuration", "`load.json`, empty", "`load.json`, a comma too many, a byte order mark")
def test_what_load_json_may_be() -> None:
    assert dict(made({"ds/t/_config/load.json": ""}).load) == {"writeDisposition": "WRITE_APPEND"}
    assert read_object(b'\xef\xbb\xbf{"maxBadRecords": 5,}', "gs://b/load.json") == {"maxBadRecords": 5}


@executes("Configuration", "other keys of `JobConfigurationLoad`")
def test_options_are_passed_on_as_they_are() -> None:
    given = {
        "sourceFormat": "CSV", "skipLeadingRows": 1, "autodetect": True, "nullMarker": "-", "allowJaggedRows": True,
        "createDisposition": "CREATE_NEVER", "timePartitioning": {"type": "HOUR", "field": "at"},
        "clustering": {"fields": ["a", "b"]}, "useAvroLogicalTypes": True, "fieldDelimiter": "\u0001",
    }  # fmt: skip
    assert load_options(made({"_config/load.json": given})) == {**given, "writeDisposition": "WRITE_APPEND"}


TABLE = r"(?P<dataset>\w+)/(?P<table>\w+)/"
DAY = r"(?P<yyyy>\d{4})(?P<mm>..)(?P<dd>..)"
GROUPS = {
    "`dataset`": (r"(?P<dataset>[^/]+)/(?P<table>\w+)/", "p.ds/t/x/_SUCCESS", "p.ds.t"),
    "`table`": (f"in/{TABLE}", "in/ds/t/x/_SUCCESS", "home.ds.t"),
    "`partition`": (rf"{TABLE}p=(?P<partition>\d+)/", "ds/t/p=20240501/_SUCCESS", "home.ds.t$20240501"),
    "`yyyy`, `mm`, `dd`": (
        rf"{TABLE}(?P<yyyy>\d+)-(?P<mm>\d+)-(?P<dd>\d+)/", "ds/t/2024-5-1/_SUCCESS", "home.ds.t$20240501",
    ),
    "`hh`": (rf"{TABLE}{DAY}T(?P<hh>..)/", "ds/t/20240501T13/_SUCCESS", "home.ds.t$2024050113"),
    "`hr`": (rf"{TABLE}{DAY}T(?P<hr>..)/", "ds/t/20240501T13/_SUCCESS", "home.ds.t$2024050113"),
    "`batch`": (f"{TABLE}(?P<batch>[^/]+)/", "ds/t/b7/_SUCCESS", "home.ds.t"),
    "other names": (f"{TABLE}(?P<bacth>[^/]+)/", "ds/t/b7/_SUCCESS", ""),
}  # fmt: skip


@executes("Destinations")
@section("Destinations")
def test_a_group_is_read_as_the_page_says(row: Row) -> None:
    regex, path, table = GROUPS[row.what]
    if row.verdict == "refused":
        with pytest.raises(NoDestination, match="has a group"):
            infer(path, regex=regex, overrides=Overrides(), project="home")
        return
    found = infer(path, regex=regex, overrides=Overrides(), project="home")
    assert str(found.table) == table
    assert found.batch == ("b7" if row.what == "`batch`" else "")


@pytest.mark.parametrize("date", ["(?P<yyyy>.{4})-(?P<dd>..)", "(?P<yyyy>.{4})-(?P<mm>..)"], ids=["a gap", "no month"])
def test_dates_that_are_none_are_refused(date: str) -> None:
    with pytest.raises(NoDestination):
        infer("ds/t/2024-13/_SUCCESS", regex=f"{TABLE}{date}/", overrides=Overrides(), project="home")


@executes("Destinations: paths")
@section("Destinations: paths")
def test_a_path_goes_where_the_page_says(row: Row) -> None:
    path, _, verdict, here = row.cells
    name = path.strip("`")
    if verdict == "refused" or "error" in here:
        with pytest.raises(NoDestination):
            infer(name, overrides=Overrides(), project="home")
        return
    assert str(infer(name, overrides=Overrides(), project="home").table).removeprefix("home.") == here.strip("`")
    assert row.cells[1] == here, "the same as before"


def _page(what: str) -> str:
    (row,) = [row for row in ROWS if row.section == "Jobs" and row.what == what]
    return re.findall(r"`([^`]+)`", row.here)[0]


@executes("Jobs", "job id of a load", "job id of a query", "job id with `dataSourceName`")
def test_job_ids_have_the_form_that_the_page_shows() -> None:
    one = planned("a.csv")
    load = _page("job id of a load")
    for part, value in (("<dataset>", "ds"), ("<table>", "t"), ("<event id>", one.event_id)):
        load = load.replace(part, value)
    assert one.load_job().job_id == load
    query = planned("a.csv", transform=Transform("SELECT 1", "x.sql"))
    assert query.load_job().job_id == load.replace("_load", _page("job id of a query"))
    named = planned("a.csv", name="Crm").load_job().job_id
    form = (
        _page("job id with `dataSourceName`")
        .replace("<name>", "crm")
        .replace("<dataset>", "ds")
        .replace("<table>", "t")
    )
    assert named.startswith(form.rstrip("…"))


@executes("Jobs", "label `component`", "label `cloud-function-name`", "label `batch-id`", "label `bucket-id`")
def test_jobs_have_the_labels_of_the_page() -> None:
    labels = job_labels({}, bucket="landing", batch="B7", function="Fn")
    assert labels.pop("component") == _page("label `component`")
    assert labels == {"cloud-function-name": "fn", "batch-id": "b7", "bucket-id": "landing"}
    assert "cloud-function-name" not in job_labels({}, bucket="b", batch="", function="")


@executes("Ordered tables", "the order")
def test_batches_are_ordered_by_their_path() -> None:
    table = OrderedTable("b", "ds/t")
    paths = ["historical/b9", "incremental/b1", "incremental/b10", "incremental/b2"]
    files = [FileVersion(ObjectRef("b", f"ds/t/{path}/_SUCCESS"), Generation(9 - at)) for at, path in enumerate(paths)]
    assert sorted(files, key=lambda file: order_of(table, file)) == files


@executes("Errors", "`DestinationRegexMatchException`")
def test_a_pattern_in_load_json_can_be_mended_there_and_a_path_cannot() -> None:
    success = ObjectRef("b", "ds/2024-05-01/_SUCCESS")
    with pytest.raises(BadConfig, match="does not match destinationRegex"):
        destination_of(success, Convention(bucket="b"), Overrides("x(?P<table>.)"), project="p")
    with pytest.raises(BadInput, match="the layout is"):
        destination_of(ObjectRef("b", "ds/_SUCCESS"), Convention(bucket="b"), Overrides(), project="p")


@executes("`backfill.py`")
@section("`backfill.py`")
def test_backfill_knows_the_flags_that_the_page_says(row: Row) -> None:
    app = typer.Typer()
    app.command()(backfill)
    known = {flag for option in get_command(app).params for flag in option.opts}
    if row.verdict == "refused":
        assert not known & set(row.names)
    else:
        assert set(row.names) <= known


def test_the_page_of_the_convention_leads_here() -> None:
    readers = [ROOT / "README.md", *sorted(PAGE.parent.glob("*.md"))]
    assert any(f"({'docs/' if one.name == 'README.md' else ''}{PAGE.name}" in one.read_text() for one in readers)
