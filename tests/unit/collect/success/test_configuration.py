"""Merging `_config/`: the documented precedence, what each file counts for, and errors that name the file."""

import time
from typing import Any

import pytest
from tests.unit.collect.success.directories import made

from ingestd.collect.success.configuration import (
    BadConfig,
    load_options,
    merge,
    read_object,
)

ROOT, DATASET, TABLE, BATCH = "_config/", "ds/_config/", "ds/t/_config/", "ds/t/b/_config/"


def test_the_documentations_worked_example_merges_as_it_prints() -> None:
    """With its commas too many. Its third file misspells WRITE_TRUNCATE, which its result spells right."""
    found = made(
        {
            f"{ROOT}load.json": """{
    "sourceFormat": "CSV",
    "writeDisposition": "WRITE_APPEND",
    "schemaUpdateOptions": ["ALLOW_FILED_RELAXATION"]
}""",
            f"{DATASET}load.json": """{
    "sourceFormat": "AVRO",
}""",
            f"{TABLE}load.json": """{
    "writeDisposition": "WRITE_TRUNCATE",
}""",
        }
    )
    assert found.load == {
        "sourceFormat": "AVRO",
        "writeDisposition": "WRITE_TRUNCATE",
        "schemaUpdateOptions": ["ALLOW_FILED_RELAXATION"],
    }
    with pytest.raises(BadConfig, match=r"gs://b/_config/load.json: .*did you mean 'ALLOW_FIELD_RELAXATION'"):
        load_options(found)


def test_w02_the_closest_load_json_wins_and_the_batchs_own_counts() -> None:
    found = made(
        {
            f"{ROOT}load.json": {"sourceFormat": "CSV", "skipLeadingRows": 1, "labels": {"team": "a", "env": "x"}},
            f"{DATASET}load.json": {"skipLeadingRows": 2, "timePartitioning": {"type": "DAY", "field": "d"}},
            f"{TABLE}load.json": {"skipLeadingRows": 3, "timePartitioning": {"type": "HOUR"}},
            f"{BATCH}load.json": {"fieldDelimiter": "\u0001", "skipLeadingRows": 4, "labels": {"team": "b"}},
        }
    )
    assert load_options(found) == {
        "sourceFormat": "CSV",
        "skipLeadingRows": 4,
        "fieldDelimiter": "\u0001",
        "timePartitioning": {"type": "HOUR", "field": "d"},
        "writeDisposition": "WRITE_APPEND",
    }
    assert found.labels == {"team": "b", "env": "x"}


def test_lists_scalars_and_null_replace_and_objects_never_clash() -> None:
    one, two = {"a": {"x": 1}, "b": [1, 2], "c": 1}, {"a": 5, "b": [3], "c": {"y": 1}}
    merged, origins = merge([("1", one), ("2", two), ("3", {"b": None})])
    assert merged == {"writeDisposition": "WRITE_APPEND", "a": 5, "b": None, "c": {"y": 1}}
    assert origins == {"a": "2", "b": "3", "c": "2"}


def test_w01_nothing_of_one_merge_leaks_into_the_next() -> None:
    first = made({f"{TABLE}load.json": {"destinationTable": {"tableId": "x"}, "labels": {"a": "b"}}})
    second = made({})
    assert first.overrides.table == {"tableId": "x"}
    assert (second.overrides.table, second.labels, dict(second.load)) == ({}, {}, {"writeDisposition": "WRITE_APPEND"})


def test_external_json_and_sql_count_from_the_closest_folder_alone() -> None:
    found = made(
        {
            f"{ROOT}external.json": {"sourceFormat": "CSV", "autodetect": True},
            f"{TABLE}external.json": {"sourceFormat": "NEWLINE_DELIMITED_JSON"},
            f"{DATASET}far.sql": "SELECT 1",
            f"{TABLE}bq_transform.sql": "INSERT x SELECT 2",
        }
    )
    assert found.transform is not None
    assert (found.transform.sql, found.transform.spark) == ("INSERT x SELECT 2", False)
    assert found.transform.external == {"sourceFormat": "NEWLINE_DELIMITED_JSON"}
    without = made({f"{TABLE}bq_transform.sql": "SELECT 2", f"{ROOT}external.json": ""})
    assert without.transform is not None
    assert without.transform.external == {"sourceFormat": "PARQUET"}
    assert made({f"{TABLE}x.sql": "SELECT 2", f"{BATCH}x.sql": " \n"}).transform is None  # an empty one opts out
    spark = made({f"{TABLE}spark_transform.sql": "SELECT 2"}).transform
    assert spark is not None
    assert spark.spark


def test_w08_orderme_counts_at_every_level() -> None:
    for level in (ROOT, DATASET, TABLE, BATCH):
        assert made({f"{level}ORDERME": ""}).ordered
    assert not made({f"{TABLE}load.json": {}}).ordered


@pytest.mark.parametrize(
    ("files", "because"),
    [
        ({f"{TABLE}load.json": "{"}, r"gs://b/ds/t/_config/load.json:1:2: not valid JSON"),
        ({f"{TABLE}load.json": "[]"}, "has to be a JSON object"),
        ({f"{TABLE}load.json": {"destinationTable": "x"}}, "destinationTable has to be an object"),
        ({f"{TABLE}load.json": {"destinationRegex": 5}}, "destinationRegex has to be text"),
        ({f"{TABLE}load.json": {"labels": []}, f"{BATCH}load.json": {"labels": [1]}}, "labels have to be an object"),
        (
            {f"{TABLE}a.sql": "x", f"{TABLE}b.sql": "y"},
            r"several: gs://b/ds/t/_config/a.sql, gs://b/ds/t/_config/b.sql",
        ),
    ],
)
def test_what_cannot_be_used_is_named(files: dict[str, Any], because: str) -> None:
    with pytest.raises(BadConfig, match=because):
        made(files)


def test_a_wrong_option_names_the_file_it_is_from() -> None:
    found = made({f"{ROOT}load.json": {"skipLeadingRow": 1}, f"{TABLE}load.json": {"maxBadRecords": "many"}})
    with pytest.raises(BadConfig) as caught:
        load_options(found)
    assert "gs://b/_config/load.json: skipLeadingRow: unknown key" in str(caught.value)
    assert "gs://b/ds/t/_config/load.json: maxBadRecords: must be a whole number" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' + '\\"' * 250_000,
        '{"a": "' + '"' * 500_000,
        "{" + ", " * 250_000,
        '{"a": ' + "[" * 500_000,
        '"' + "\\" * 500_000,
        "{" + '"a": 1, ' * 60_000 + "}",
    ],
    ids=["escaped quotes", "quotes", "commas", "brackets", "backslashes", "keys"],
)
def test_the_time_a_file_takes_grows_with_its_size_only(text: str) -> None:
    """Quadratic, half a megabyte takes half an hour of the event loop."""
    started = time.process_time()
    with pytest.raises(BadConfig, match=r"gs://b/load\.json") as refused:
        read_object(text.encode(), "gs://b/load.json")
    assert len(str(refused.value)) < 50_000
    assert time.process_time() - started < 20


def test_a_comma_inside_text_is_kept_and_one_too_many_is_not() -> None:
    text = '{"a": "x,]", "b": ["\\",}", "y" ,\n ], "c": "\\\\",}'
    assert read_object(text.encode(), "gs://b/load.json") == {"a": "x,]", "b": ['",}', "y"], "c": "\\"}


def test_of_many_problems_the_first_are_told() -> None:
    found = made({f"{ROOT}load.json": {f"key{n}": 1 for n in range(20_000)}})
    with pytest.raises(BadConfig, match=r"unknown key 'key0'.*; and 9[0-9]+ more$"):
        load_options(found)
