"""Datasets and tables through Google's client: create, read, change, delete, list."""

from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions
from google.cloud import bigquery
from tests.integration.bigquery.local import LocalBigQuery
from tests.support.google import PROJECT

NAME = bigquery.SchemaField("name", "STRING")
COUNT = bigquery.SchemaField("count", "INTEGER", mode="REQUIRED")


def test_a_dataset_keeps_what_it_was_created_with(client: bigquery.Client, dataset: str) -> None:
    described = bigquery.Dataset(f"{PROJECT}.{dataset}_eu")
    described.location = "EU"
    described.description = "words"
    described.labels = {"team": "data"}
    described.default_table_expiration_ms = 3_600_000
    client.create_dataset(described)
    found = client.get_dataset(f"{dataset}_eu")
    assert (found.location, found.description, found.labels) == ("EU", "words", {"team": "data"})
    assert found.default_table_expiration_ms == 3_600_000
    assert found.created is not None
    assert found.etag


def test_creating_a_dataset_twice_answers_409(client: bigquery.Client, dataset: str) -> None:
    with pytest.raises(exceptions.Conflict, match=f"Already Exists: Dataset {PROJECT}:{dataset}"):
        client.create_dataset(dataset)
    assert client.create_dataset(dataset, exists_ok=True).dataset_id == dataset


def test_a_missing_dataset_is_named_in_the_404(client: bigquery.Client) -> None:
    with pytest.raises(exceptions.NotFound, match=f"Not found: Dataset {PROJECT}:nowhere"):
        client.get_dataset("nowhere")


def test_labels_are_patched_one_by_one_and_removed_with_none(client: bigquery.Client, dataset: str) -> None:
    found = client.get_dataset(dataset)
    found.labels = {"a": "1", "b": "2"}
    found = client.update_dataset(found, ["labels"])
    found.labels = {"a": None, "b": "3"}
    assert client.update_dataset(found, ["labels"]).labels == {"b": "3"}


def test_an_update_with_a_stale_etag_answers_412(client: bigquery.Client, dataset: str) -> None:
    mine, theirs = client.get_dataset(dataset), client.get_dataset(dataset)
    theirs.description = "theirs"
    client.update_dataset(theirs, ["description"])
    mine.description = "mine"
    with pytest.raises(exceptions.PreconditionFailed):
        client.update_dataset(mine, ["description"])
    assert client.get_dataset(dataset).description == "theirs"


def test_datasets_are_listed_in_pages_and_filtered_by_label(client: bigquery.Client, dataset: str) -> None:
    labelled = bigquery.Dataset(f"{PROJECT}.{dataset}_labelled")
    labelled.labels = {"only": dataset}
    client.create_dataset(labelled)
    every = [item.dataset_id for item in client.list_datasets(page_size=1)]
    assert dataset in every
    assert every == sorted(every)
    found = client.list_datasets(filter=f"labels.only:{dataset}")
    assert [item.dataset_id for item in found] == [f"{dataset}_labelled"]


def test_a_dataset_with_tables_is_deleted_only_with_its_contents(client: bigquery.Client, dataset: str) -> None:
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", [NAME]))
    with pytest.raises(exceptions.BadRequest, match="is still in use"):
        client.delete_dataset(dataset)
    client.delete_dataset(dataset, delete_contents=True)
    with pytest.raises(exceptions.NotFound):
        client.get_table(f"{dataset}.t")


def test_a_table_keeps_nested_and_repeated_fields(client: bigquery.Client, dataset: str) -> None:
    schema = [
        bigquery.SchemaField("id", "INTEGER", mode="REQUIRED", description="key"),
        bigquery.SchemaField("tags", "STRING", mode="REPEATED"),
        bigquery.SchemaField(
            "lines", "RECORD", mode="REPEATED", fields=[bigquery.SchemaField("price", "NUMERIC", precision=10, scale=2)]
        ),
    ]
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", schema))
    assert client.get_table(f"{dataset}.t").schema == schema


def test_partitioning_clustering_and_expiration_are_kept(client: bigquery.Client, dataset: str) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", [NAME, bigquery.SchemaField("at", "TIMESTAMP")])
    table.time_partitioning = bigquery.TimePartitioning(type_="HOUR", field="at", expiration_ms=86_400_000)
    table.require_partition_filter = True
    table.clustering_fields = ["name"]
    table.expires = datetime.now(UTC) + timedelta(days=1)
    table.labels = {"k": "v"}
    client.create_table(table)
    found = client.get_table(f"{dataset}.t")
    assert (found.time_partitioning.type_, found.time_partitioning.field) == ("HOUR", "at")
    assert found.time_partitioning.expiration_ms == 86_400_000
    assert found.require_partition_filter is True
    assert found.clustering_fields == ["name"]
    assert abs(found.expires - table.expires) < timedelta(milliseconds=1)


def test_range_partitioning_is_kept(client: bigquery.Client, dataset: str) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", [COUNT])
    table.range_partitioning = bigquery.RangePartitioning(
        range_=bigquery.PartitionRange(start=0, end=100, interval=10), field="count"
    )
    client.create_table(table)
    found = client.get_table(f"{dataset}.t").range_partitioning
    assert (found.field, found.range_.start, found.range_.end, found.range_.interval) == ("count", 0, 100, 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: setattr(table, "clustering_fields", ["gone"]), "clustering cannot be found"),
        (
            lambda table: setattr(table, "time_partitioning", bigquery.TimePartitioning(field="gone")),
            "partitioning cannot be found",
        ),
        (
            lambda table: setattr(table, "time_partitioning", bigquery.TimePartitioning(field="name")),
            "has type STRING",
        ),
    ],
)
def test_a_layout_the_schema_cannot_carry_is_refused(
    client: bigquery.Client, dataset: str, change: object, message: str
) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", [NAME])
    change(table)  # type: ignore[operator]
    with pytest.raises(exceptions.BadRequest, match=message):
        client.create_table(table)


def test_columns_are_added_and_relaxed_and_nothing_else(client: bigquery.Client, dataset: str) -> None:
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", [COUNT]))
    table = client.get_table(f"{dataset}.t")
    table.schema = [bigquery.SchemaField("count", "INTEGER"), NAME]
    table = client.update_table(table, ["schema"])
    assert [(item.name, item.mode) for item in table.schema] == [("count", "NULLABLE"), ("name", "NULLABLE")]
    for schema, message in (
        ([NAME], "Field count is missing in new schema"),
        ([bigquery.SchemaField("count", "STRING"), NAME], "Field count has changed type from INTEGER to STRING"),
        ([COUNT, NAME], "Field count has changed mode from NULLABLE to REQUIRED"),
    ):
        table.schema = schema
        with pytest.raises(exceptions.BadRequest, match=message):
            client.update_table(table, ["schema"])


def test_nested_columns_are_added_under_existing_rows(client: bigquery.Client, dataset: str) -> None:
    inner = bigquery.SchemaField("a", "INTEGER")
    client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.t", [bigquery.SchemaField("s", "RECORD", fields=[inner])]))
    assert client.insert_rows_json(f"{dataset}.t", [{"s": {"a": 1}}]) == []
    table = client.get_table(f"{dataset}.t")
    table.schema = [bigquery.SchemaField("s", "RECORD", fields=[inner, bigquery.SchemaField("b", "STRING")])]
    client.update_table(table, ["schema"])
    assert [tuple(row.values()) for row in client.list_rows(f"{dataset}.t")] == [({"a": 1, "b": None},)]


def test_an_expired_table_is_gone(client: bigquery.Client, dataset: str, local: LocalBigQuery) -> None:
    table = bigquery.Table(f"{PROJECT}.{dataset}.t", [NAME])
    client.create_table(table)
    found = client.get_table(f"{dataset}.t")
    found.expires = datetime.now(UTC) - timedelta(seconds=1)
    with pytest.raises(exceptions.NotFound):
        client.update_table(found, ["expires"])
        client.get_table(f"{dataset}.t")
    assert client.create_table(table).table_id == "t"


def test_tables_are_listed_in_pages(client: bigquery.Client, dataset: str) -> None:
    for name in ("c", "a", "b"):
        client.create_table(bigquery.Table(f"{PROJECT}.{dataset}.{name}", [NAME]))
    assert [item.table_id for item in client.list_tables(dataset, page_size=2)] == ["a", "b", "c"]


def test_models_and_routines_are_listed_as_none_and_refused_by_name(client: bigquery.Client, dataset: str) -> None:
    assert list(client.list_models(dataset)) == []
    assert list(client.list_routines(dataset)) == []
    routine = bigquery.Routine(f"{PROJECT}.{dataset}.r", type_="SCALAR_FUNCTION", language="SQL", body="1")
    with pytest.raises(exceptions.MethodNotImplemented, match="routines"):
        client.create_routine(routine)


def test_hidden_datasets_appear_only_when_asked_for(client: bigquery.Client) -> None:
    names = [item.dataset_id for item in client.list_datasets()]
    assert not any(name.startswith("_") for name in names)
