"""From what was found to the record: projects, job ids, formats, and how each way of loading is told."""

import pytest
from tests.support.manual_clock import ManualClock
from tests.unit.collect.success.directories import SUCCESS, planned

from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.collect.success.configuration import BadConfig, Transform
from ingestd.collect.success.planning import unresolved
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, Generation


def test_identity_and_place_follow_from_the_success_file_alone() -> None:
    before = unresolved(FileVersion(SUCCESS, Generation(7)), project="home", clock=ManualClock())
    after = planned("a.csv", job_project="pays")
    assert (before.event_id, before.identity, before.home, before.day) == (
        after.event_id, after.identity, after.home, after.day,
    )  # fmt: skip
    again = unresolved(FileVersion(SUCCESS, Generation(8)), project="home", clock=ManualClock())
    assert again.event_id != before.event_id
    assert Record.from_json(after.to_json()).success == after.success


def test_one_project_pays_and_another_has_the_table() -> None:
    record = planned("a.csv", job_project="pays", storage_project="stores", name="My Source")
    assert record.load["destinationTable"] == {"projectId": "stores", "datasetId": "ds", "tableId": "t$20240101"}
    assert record.placement.project == record.load_job().project == "pays"
    assert record.dest == "stores.ds.t"
    assert record.load_job().job_id.startswith("gcf-ingest-my_source-stores_ds_t--")
    assert planned("a.csv").dest == "ds.t"


def test_names_tell_the_format_where_load_json_does_not() -> None:
    assert planned("a.avro", "b.avro").load["sourceFormat"] == "AVRO"
    assert planned("part-0", "part-1").load["sourceFormat"] == "CSV"
    assert planned("a.avro", load={"sourceFormat": "PARQUET"}).load["sourceFormat"] == "PARQUET"
    with pytest.raises(BadConfig, match="files of AVRO and CSV"):
        planned("a.avro", "b.csv")
    with pytest.raises(BadInput, match="wildcard"):
        planned("a*.csv")
    with pytest.raises(BadInput, match="slashes in a row"):
        planned("x//a.csv")
    assert planned().phase is Phase.MISSING


def test_a_transformation_reads_as_external_json_says() -> None:
    external = {"sourceFormat": "CSV", "csvOptions": {"skipLeadingRows": 1}, "sourceUris": ["REPLACEME"]}
    query = Transform("INSERT {dest_dataset}.{dest_table} SELECT * FROM temp_ext", "x.sql", False, external, True)
    record = planned("a.avro", "b.csv", transform=query)  # what is in them is the query's business
    assert record.success is not None
    assert record.success.sql == "INSERT `home`.ds.t SELECT * FROM temp_ext"
    assert record.success.external == {
        **external,
        "sourceUris": ["gs://b/ds/t/$20240101/b1/a.avro", "gs://b/ds/t/$20240101/b1/b.csv"],
    }
    assert "_query--" in record.load_job().job_id


def test_on_spark_what_is_selected_is_loaded_and_load_json_says_into_what() -> None:
    load = {"writeDisposition": "WRITE_TRUNCATE", "fieldDelimiter": "|", "sourceFormat": "CSV"}
    spark = Transform("SELECT 1", "spark_transform.sql", True, {"sourceFormat": "PARQUET"}, False)
    record = planned("a.csv", load=load, transform=spark)
    assert record.success is not None
    assert record.success.external == {"fieldDelimiter": "|", "sourceFormat": "CSV"}
    assert record.load == {
        "writeDisposition": "WRITE_TRUNCATE",
        "sourceFormat": "PARQUET",
        "sourceUris": [],
        "destinationTable": {"projectId": "home", "datasetId": "ds", "tableId": "t$20240101"},
    }
    assert "_load--" in record.load_job().job_id
    described = Transform("SELECT 1", "x", True, {"sourceFormat": "CSV", "csvOptions": {"quote": "'"}}, True)
    record = planned("a.csv", transform=described)
    assert record.success is not None
    assert record.success.external == {"sourceFormat": "CSV", "quote": "'"}
