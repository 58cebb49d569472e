"""`copy`, `query`, `export`, `insert`, `drop`: the jobs they make, and what makes repeating them harmless."""

import base64
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from ingestd.actions import query
from ingestd.actions.executor import ActionFailed
from ingestd.actions.insert import MAX_BYTES, MAX_ROWS, chunks
from ingestd.googlesql.words import returns_rows
from ingestd.model.errors import BadInput, NotFound
from ingestd.model.jobs import JobError, JobKind


def table(name: str, dataset: str = "ds") -> dict[str, str]:
    return {"projectId": "proj", "datasetId": dataset, "tableId": name}


async def test_copy_replaces_by_default_and_appends_when_asked(batch):
    await batch.run(
        {"Action": "copy", "Request": {"Source": "ds.a", "Dest": "ds.b"}},
        {"Action": "copy", "Request": {"Source": "other:ds.a", "Dest": "ds.b$20240101", "Append": True}},
    )
    first, second = batch.warehouse.order
    assert first.kind is JobKind.COPY
    assert first.configuration == {
        "sourceTables": [table("a")],
        "destinationTable": table("b"),
        "writeDisposition": "WRITE_TRUNCATE",
        "createDisposition": "CREATE_IF_NEEDED",
    }
    assert first.ref.job_id == "ds_orders--117_00002_copy--dispatch"
    assert first.labels == {"ingestd": "copy", "ingestd_event": "117"}
    assert second.configuration["writeDisposition"] == "WRITE_APPEND"
    assert second.configuration["sourceTables"][0]["projectId"] == "other"
    assert second.configuration["destinationTable"]["tableId"] == "b$20240101"


async def test_a_copy_runs_where_its_tables_are(batch):
    await batch.run({"Action": "copy", "Request": {"Source": "eu_data.a", "Dest": "eu_data.b"}})
    assert batch.warehouse.order[0].ref.location == "EU"


async def test_copy_without_source_takes_the_jobs_destination(batch):
    await batch.run({"Action": "copy", "Request": {"Dest": "ds.b"}})
    assert batch.warehouse.order[0].configuration["sourceTables"] == [table("orders")]


async def test_a_template_makes_the_destination_first(batch):
    batch.warehouse.tables["ds.template"] = {
        "schema": {"fields": []}, "clustering": {"fields": ["a"]}, "expirationTime": "1", "numRows": "5",
    }  # fmt: skip
    await batch.run({"Action": "copy", "Request": {"Source": "ds.a", "Dest": "ds.b$2024", "Template": "ds.template"}})
    assert batch.warehouse.tables["ds.b"] == {"schema": {"fields": []}, "clustering": {"fields": ["a"]}}
    assert "createDisposition" not in batch.warehouse.order[0].configuration


async def test_a_destination_that_exists_gets_the_templates_new_columns(batch):
    known, new = {"name": "id", "type": "INTEGER"}, {"name": "more", "type": "STRING", "mode": "REQUIRED"}
    batch.warehouse.tables["ds.template"] = {"schema": {"fields": [known, new]}}
    batch.warehouse.tables["ds.b"] = {"schema": {"fields": [known]}}
    await batch.run({"Action": "copy", "Request": {"Source": "ds.a", "Dest": "ds.b", "Template": "ds.template"}})
    assert batch.warehouse.tables["ds.b"]["schema"]["fields"] == [known, {"name": "more", "type": "STRING"}]


async def test_a_missing_template_is_named(batch):
    with pytest.raises(ActionFailed, match=r"proj\.ds\.none") as failed:
        await batch.run({"Action": "copy", "Request": {"Source": "ds.a", "Dest": "ds.b", "Template": "ds.none"}})
    assert isinstance(failed.value.cause, NotFound)


PARTITIONED = {"Source": "ds.src${DollarSign}${PartitionID}", "Dest": "ds.dst_$PartitionID", "MultiPartition": True}


def pushed(text: str) -> dict:
    return {"Action": "push", "Request": {"Topic": "news", "Message": text}}


async def test_each_partition_is_copied_and_on_success_comes_after_all(batch):
    batch.warehouse.results["partitions"] = [
        {"partition_id": "20240101"}, {"partition_id": "__NULL__"}, {"partition_id": "20240102"},
    ]  # fmt: skip
    await batch.run({"Action": "copy", "Request": PARTITIONED, "OnSuccess": [pushed("all of $Partitions")]})
    copies = [request for request in batch.warehouse.order if request.kind is JobKind.COPY]
    assert [
        (copy.configuration["sourceTables"][0]["tableId"], copy.configuration["destinationTable"]["tableId"])
        for copy in copies
    ] == [("src$20240101", "dst_20240101"), ("src$20240102", "dst_20240102")]
    assert len({copy.ref.job_id for copy in copies}) == 2
    assert batch.messages()[0].data == b'all of ["20240101", "20240102"]'
    listing = batch.warehouse.order[0].configuration["query"]
    assert "`proj.ds.INFORMATION_SCHEMA.PARTITIONS`" in listing and "table_name = 'src'" in listing


async def test_no_partitions_is_a_success(batch):
    await batch.run({"Action": "copy", "Request": PARTITIONED, "OnSuccess": [pushed("done")]})
    assert [message.data for message in batch.messages()] == [b"done"]


async def test_tables_without_a_place_for_the_partition_get_it_as_decorator(batch):
    batch.warehouse.results["partitions"] = [{"partition_id": "2024"}]
    request = {"Source": "ds.src", "Dest": "ds.dst", "MultiPartition": True}
    await batch.run({"Action": "copy", "Request": request})
    configuration = batch.warehouse.order[-1].configuration
    assert configuration["sourceTables"][0]["tableId"] == "src$2024"
    assert configuration["destinationTable"]["tableId"] == "dst$2024"


async def test_one_failed_partition_fails_the_step_and_a_rerun_adopts_the_others(batch):
    batch.warehouse.results["partitions"] = [{"partition_id": "1"}, {"partition_id": "2"}]
    batch.warehouse.fails["copy_2"] = JobError("backendError", "hiccup")
    action = {"Action": "copy", "Request": PARTITIONED, "OnSuccess": [pushed("done")]}
    with pytest.raises(ActionFailed):
        await batch.run(action)
    assert batch.messages() == []
    batch.warehouse.fails.clear()
    await batch.run(action)
    stem = "ds_orders--117_00002_copy"
    assert batch.warehouse.ran() == [
        f"{stem}_partitions--dispatch",
        f"{stem}_1--dispatch",
        f"{stem}_2--dispatch",
        f"{stem}_2_try2--dispatch",
    ]


async def test_partition_sql_knows_the_source_table_and_the_batch(batch):
    batch.values = {"Source": {"URL": "gs://inbox/a"}}
    request = {
        "Source": "ds.src",
        "Dest": "ds.dst",
        "PartitionSQL": "SELECT partition_id FROM `$Source.ProjectID.$Source.DatasetID.meta` WHERE e = $EventID "
        "AND t = '$Source.TableID'",
    }
    await batch.run({"Action": "copy", "Request": request})
    assert batch.warehouse.order[0].configuration["query"] == (
        "SELECT partition_id FROM `proj.ds.meta` WHERE e = 117 AND t = 'src'"
    )


async def test_partition_sql_without_the_column_is_refused(batch):
    batch.warehouse.results["partitions"] = [{"day": "1"}]
    with pytest.raises(ActionFailed, match="partition_id") as failed:
        await batch.run({"Action": "copy", "Request": PARTITIONED})
    assert isinstance(failed.value.cause, BadInput)


async def test_a_partition_that_is_no_partition_id_reaches_no_table(batch):
    batch.warehouse.results["partitions"] = [{"partition_id": "1` DROP"}]
    with pytest.raises(ActionFailed) as failed:
        await batch.run({"Action": "copy", "Request": PARTITIONED})
    assert isinstance(failed.value.cause, BadInput)
    assert [request.kind for request in batch.warehouse.order] == [JobKind.QUERY]


async def test_query_writes_its_destination(batch):
    await batch.run(
        {"Action": "query", "Request": {"SQL": "SELECT * FROM $DestTable", "Dest": "ds.out", "DatasetID": "eu_data"}}
    )
    (request,) = batch.warehouse.order
    assert request.configuration == {
        "query": "SELECT * FROM `ds.orders`",
        "useLegacySql": False,
        "destinationTable": table("out"),
        "writeDisposition": "WRITE_TRUNCATE",
        "createDisposition": "CREATE_IF_NEEDED",
        "defaultDataset": {"projectId": "proj", "datasetId": "eu_data"},
    }
    assert request.ref.location == "EU"


async def test_dml_has_no_destination(batch):
    await batch.run({"Action": "query", "Request": {"SQL": "-- why\nMERGE ds.a USING ds.b", "Dest": "ds.out"}})
    assert "destinationTable" not in batch.warehouse.order[0].configuration


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select 1", True),
        ("\n/* INSERT */ WITH x AS (SELECT 1) SELECT * FROM x", True),
        ("(SELECT 1) UNION ALL (SELECT 2)", True),
        ("# note\nUPDATE t SET a = 1 WHERE TRUE", False),
        ("CREATE TABLE a AS SELECT 1", False),
        ("BEGIN SELECT 1; END", False),
    ],
)
def test_only_statements_with_rows_take_a_destination(sql, expected):
    assert returns_rows(sql) is expected


async def test_an_object_name_cannot_become_sql(batch):
    batch.values = {"SourceURI": "gs://inbox/x'; DROP TABLE ds.orders; --"}
    await batch.run({"Action": "query", "Request": {"SQL": "SELECT '$SourceURI', $SourceURI"}})
    assert batch.warehouse.order[0].configuration["query"] == (
        r"SELECT 'gs://inbox/x\'; DROP TABLE ds.orders; --', 'gs://inbox/x\'; DROP TABLE ds.orders; --'"
    )


async def test_sql_is_read_from_a_file_and_filled_in(batch):
    batch.storage.write("outbox", "q.sql", b"SELECT $EventID AS e")
    await batch.run({"Action": "query", "Request": {"SQLURL": "gs://outbox/q.sql"}})
    assert batch.warehouse.order[0].configuration["query"] == "SELECT 117 AS e"


async def test_a_missing_sql_file_is_named(batch):
    with pytest.raises(ActionFailed, match=r"gs://outbox/none\.sql"):
        await batch.run({"Action": "query", "Request": {"SQLURL": "gs://outbox/none.sql"}})


@pytest.mark.parametrize("action", ["query", "insert"])
async def test_a_file_that_is_too_large_for_sql_fails_its_action_unread(batch, monkeypatch, action):
    monkeypatch.setattr(query, "_LARGEST_SQL", 100)
    batch.storage.write("outbox", "q.sql", b"SELECT 1 -- " + b"x" * 100)
    with pytest.raises(
        ActionFailed, match=r"SQLURL: gs://outbox/q\.sql: 112 bytes, and at most 100 are read"
    ) as failed:
        await batch.run({"Action": action, "Request": {"SQLURL": "gs://outbox/q.sql", "Dest": "ds.t"}})
    assert isinstance(failed.value.cause, BadInput)
    assert not batch.warehouse.order


async def test_legacy_sql_may_return_large_results(batch):
    await batch.run({"Action": "query", "Request": {"SQL": "SELECT 1", "Dest": "ds.o", "UseLegacy": True}})
    configuration = batch.warehouse.order[0].configuration
    assert configuration["useLegacySql"] is True and configuration["allowLargeResults"] is True


async def test_a_rerun_adopts_the_job_instead_of_running_it_again(batch):
    action = {"Action": "query", "Request": {"SQL": "INSERT INTO ds.x SELECT 1"}}
    await batch.run(action)
    batch.progress.crash()
    await batch.run(action)
    assert len(batch.warehouse.order) == 1


ELSEWHERE = {"job_project": "jobs-proj"}


async def test_actions_run_in_the_project_of_their_batchs_jobs_and_name_tables_of_the_daemons(batch):
    batch.settings = ELSEWHERE
    batch.warehouse.results = {"insert": [{"a": 1}], "partitions": [{"partition_id": "20240101"}]}
    batch.storage.write("outbox", "q.sql", b"SELECT 1 FROM ${DestTable}_old, `$DestTable`, x.$DestTable")
    await batch.run(
        {
            "Action": "query",
            "Request": {"SQL": "SELECT '$DestTable' FROM $DestTable", "Dest": "ds.out", "DatasetID": "d"},
        },
        {"Action": "query", "Request": {"SQLURL": "gs://outbox/q.sql"}},
        {"Action": "export", "Request": {"Source": "ds.a", "DestURL": "gs://outbox/a.avro"}},
        {
            "Action": "copy",
            "Request": {
                "Source": "ds.a",
                "Dest": "ds.b",
                "MultiPartition": True,
                "PartitionSQL": "SELECT partition_id FROM $DestTable",
            },
        },
        {"Action": "insert", "Request": {"SQL": "SELECT 1 AS a", "Dest": "ds.c"}},
    )
    assert {request.ref.project for request in batch.warehouse.order} == {"jobs-proj"}
    first, second, export, partitions, copy, _ = (request.configuration for request in batch.warehouse.order)
    assert first["query"] == "SELECT 'ds.orders' FROM `proj.ds.orders`"
    assert first["destinationTable"] == table("out")
    assert first["defaultDataset"] == {"projectId": "jobs-proj", "datasetId": "d"}
    assert second["query"] == "SELECT 1 FROM `proj.ds.orders_old`, `proj.ds.orders`, x.`ds.orders`"
    assert partitions["query"] == "SELECT partition_id FROM `proj.ds.orders`"
    assert export["sourceTable"] == table("a")
    assert copy["destinationTable"] == table("b$20240101")
    assert list(batch.warehouse.streamed) == ["proj.ds.c"]


@pytest.mark.parametrize(
    "request_",
    [
        {"SQL": "INSERT INTO ds.x SELECT 1"},
        {"SQL": "INSERT INTO x SELECT 1", "DatasetID": "eu_data"},
    ],
)
async def test_a_job_that_an_earlier_version_left_in_the_daemons_project_is_adopted_there(batch, request_):
    """Its statement would otherwise run twice: a job id counts in one project only, and in one location."""
    action = {"Action": "query", "Request": request_}
    await batch.run(action)
    batch.progress.crash()
    batch.settings = ELSEWHERE
    await batch.run(action)
    assert [request.ref.project for request in batch.warehouse.order] == ["proj"]
    assert batch.progress.response(2)["JobReference"]["ProjectId"] == "proj"


async def test_a_job_that_failed_in_the_daemons_project_is_tried_in_that_of_the_batch(batch):
    action = {"Action": "query", "Request": {"SQL": "INSERT INTO ds.x SELECT 1"}}
    batch.warehouse.fails = {"query": JobError("accessDenied", "may not run jobs here")}
    with pytest.raises(ActionFailed):
        await batch.run(action)
    batch.settings, batch.warehouse.fails = ELSEWHERE, {}
    await batch.run(action)
    assert [request.ref.project for request in batch.warehouse.order] == ["proj", "jobs-proj"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"DestURL": "gs://outbox/a-*.json.gz"},
         {"destinationFormat": "NEWLINE_DELIMITED_JSON", "compression": "GZIP"}),
        ({"DestURL": "gs://outbox/a.avro"}, {"destinationFormat": "AVRO", "useAvroLogicalTypes": True}),
        ({"DestURL": "gs://outbox/a", "Format": "PARQUET", "Compression": "SNAPPY"},
         {"destinationFormat": "PARQUET", "compression": "SNAPPY"}),
        ({"DestURL": "gs://outbox/a.csv"}, {"destinationFormat": "CSV", "fieldDelimiter": ",", "printHeader": True}),
        ({"DestURL": "gs://outbox/a", "FieldDelimiter": "|", "IncludeHeader": False},
         {"destinationFormat": "CSV", "fieldDelimiter": "|", "printHeader": False}),
    ],
)  # fmt: skip
async def test_export_reads_the_format_off_the_destination(batch, request_, expected):
    await batch.run({"Action": "export", "Request": request_})
    (made,) = batch.warehouse.order
    fixed = {"sourceTable": table("orders"), "destinationUris": [request_["DestURL"]]}
    assert made.kind is JobKind.EXTRACT and made.configuration == {**fixed, **expected}


async def test_insert_streams_given_rows_under_stable_ids(batch):
    action = {"Action": "insert", "Request": {"Dest": "ds.log", "Data": [{"e": "$EventID"}, {"e": "x"}]}}
    for _ in range(2):
        await batch.run(action)
        batch.progress.steps.clear()
    assert batch.warehouse.streamed["proj.ds.log"] == {"117-00002-0": {"e": "117"}, "117-00002-1": {"e": "x"}}


@pytest.mark.parametrize("data", ['{"a": 1}', '[{"a": 1}]', '{"a": 1}\n', {"a": 1}])
async def test_insert_takes_rows_in_any_form(batch, data):
    await batch.run({"Action": "insert", "Request": {"Dest": "ds.log", "Data": data}})
    assert list(batch.warehouse.streamed["proj.ds.log"].values()) == [{"a": 1}]


@pytest.mark.parametrize("data", ["nonsense", [1], "[1, 2]"])
async def test_insert_refuses_what_is_no_row(batch, data):
    with pytest.raises(ActionFailed) as failed:
        await batch.run({"Action": "insert", "Request": {"Dest": "ds.log", "Data": data}})
    assert isinstance(failed.value.cause, BadInput)


async def test_insert_streams_selected_rows_as_json(batch):
    batch.warehouse.results["insert"] = [
        {
            "d": date(2024, 1, 31),
            "t": datetime(2024, 1, 31, 10, tzinfo=UTC),
            "n": Decimal("1.5"),
            "b": b"\x00",
            "r": {"l": [Decimal(1)]},
            "z": None,
        }
    ]
    await batch.run({"Action": "insert", "Request": {"Dest": "ds.log", "SQL": "SELECT 1"}})
    (row,) = batch.warehouse.streamed["proj.ds.log"].values()
    assert row == {
        "d": "2024-01-31",
        "t": "2024-01-31T10:00:00+00:00",
        "n": "1.5",
        "b": base64.b64encode(b"\x00").decode(),
        "r": {"l": ["1"]},
        "z": None,
    }


async def test_no_rows_insert_nothing(batch):
    await batch.run({"Action": "insert", "Request": {"Dest": "ds.log", "SQL": "SELECT 1"}})
    assert batch.warehouse.requests == []


async def test_many_rows_go_in_several_requests(batch):
    batch.warehouse.results["insert"] = [{"n": n} for n in range(MAX_ROWS * 2 + 1)]
    await batch.run({"Action": "insert", "Request": {"Dest": "ds.log", "SQL": "SELECT 1"}})
    assert batch.warehouse.requests == [MAX_ROWS, MAX_ROWS, 1]
    assert len(batch.warehouse.streamed["proj.ds.log"]) == MAX_ROWS * 2 + 1


async def test_a_statements_rows_are_fetched_page_by_page(batch, monkeypatch):
    monkeypatch.setattr("ingestd.actions.insert.PAGE", 2)
    batch.warehouse.results["insert"] = [{"n": n} for n in range(4)]
    await batch.run({"Action": "insert", "Request": {"Dest": "ds.log", "SQL": "SELECT 1"}})
    assert batch.warehouse.requests == [2, 2]
    streamed = batch.warehouse.streamed["proj.ds.log"]
    assert {key.rpartition("-")[2]: row["n"] for key, row in streamed.items()} == {str(n): n for n in range(4)}


def test_large_rows_go_in_requests_of_bounded_size():
    rows = [{"x": "y" * (MAX_BYTES // 3)}] * 5
    parts = list(chunks(rows))
    assert [start for start, _ in parts] == [0, 2, 4]
    assert sum(len(part) for _, part in parts) == 5


async def test_drop_is_content_with_a_missing_table(batch):
    batch.warehouse.tables["ds.tmp_117"] = {}
    action = {"Action": "drop", "Request": {"Table": "ds.tmp_$EventID"}}
    await batch.run(action)
    batch.progress.crash()
    await batch.run(action)
    assert batch.warehouse.tables == {}


async def test_a_value_that_is_no_table_name_is_bad_input(batch):
    batch.values = {"Where": "ds.a`b"}
    with pytest.raises(ActionFailed) as failed:
        await batch.run({"Action": "drop", "Request": {"Table": "$Where"}})
    assert isinstance(failed.value.cause, BadInput)
