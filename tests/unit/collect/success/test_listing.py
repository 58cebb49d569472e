"""What of a directory is data, what its SQL may say, and labels BigQuery takes."""

import pytest
from tests.unit.collect.success.directories import listed, names

from ingestd.collect.success.configuration import BadConfig
from ingestd.collect.success.conventions import Conventions, Meaning
from ingestd.collect.success.labels import job_labels
from ingestd.collect.success.transform import external_definition, filled, hive_prefix, source_uris
from ingestd.model.errors import BadInput
from ingestd.model.objects import ObjectRef
from ingestd.model.tables import TableName
from ingestd.settings import Convention

FOLDER = ObjectRef("b", "ds/t/x/")


def test_w13_only_data_is_listed() -> None:
    found = listed(
        *(f"ds/t/x/{name}" for name in (
            "a.csv", "sub/b.csv", "dt=1/c.csv", "_k=v/d.csv", "# ? é.csv",
            "_config/load.json", "_backlog/x/_SUCCESS", "_temporary/0/e.csv", "_metadata", "_common_metadata",
            "_bqlock", "_BACKFILL", "_HISTORYDONE", ".part.crc", ".hidden/f.csv", "_committed_1",
        )),
        empty=("ds/t/x/empty.csv", "ds/t/x/sub/"),
        start_backfill_filename="_HISTORYDONE",
    )  # fmt: skip
    assert names(found) == ["# ? é.csv", "_k=v/d.csv", "a.csv", "dt=1/c.csv", "sub/b.csv"]
    assert found.success == 1
    assert len(found.left_out) == 14


def test_w13_directories_with_a_success_file_of_their_own_are_batches_of_their_own() -> None:
    nested = ("ds/t/x/a.csv", "ds/t/x/1/b.csv", "ds/t/x/1/_SUCCESS", "ds/t/x/1/deep/c.csv", "ds/t/x/10/d.csv")
    assert names(listed(*nested)) == ["10/d.csv", "a.csv"]
    assert names(listed(*nested, nested="include")) == ["1/b.csv", "1/deep/c.csv", "10/d.csv", "a.csv"]
    hidden = ("ds/t/x/a.csv", "ds/t/x/_temporary/_SUCCESS")
    assert names(listed(*hidden)) == ["a.csv"]


def test_which_files_mean_something() -> None:
    signs = Conventions(
        [
            Convention(bucket="b", prefix="ds/", start_backfill_filename="_GO"),
            Convention(bucket="c", root="/in/", success_filename="done", config_url="gs://safe/conf"),
        ]
    )

    def meaning(bucket: str, name: str) -> Meaning | None:
        sign = signs.sign(bucket, name)
        return sign.meaning if sign else None

    assert meaning("b", "ds/t/_SUCCESS") is Meaning.SUCCESS
    assert meaning("b", "ds/t/_GO") is Meaning.START
    assert meaning("b", "ds/t/_BACKFILL") is Meaning.GO_ON
    assert meaning("b", "ds/t/_bqlock") is Meaning.UNLOCK
    assert meaning("b", "ds/t/_config/load.json") is Meaning.CONFIG
    assert meaning("c", "in/ds/t/done") is Meaning.SUCCESS
    assert meaning("safe", "conf/ds/_config/load.json") is Meaning.CONFIG
    for bucket, name in (
        ("b", "other/t/_SUCCESS"),
        ("b", "ds/t/x_SUCCESS"),
        ("b", "ds/t/a.csv"),
        ("b", "ds/t/_backlog/x/_SUCCESS"),
        ("b", "ds/t/_config/_SUCCESS"),
        ("b", "ds/t/_temporary/0/_SUCCESS"),
        ("c", "in/ds/t/_SUCCESS"),
        ("c", "in/ds/t/_config/load.json"),
        ("d", "ds/t/_SUCCESS"),
    ):
        assert meaning(bucket, name) is None, name


def test_w15_placeholders_are_names_and_nothing_else_of_a_path_reaches_the_sql() -> None:
    sql = "INSERT {dest_dataset}.{dest_table} SELECT '{}', {other} FROM temp_ext"
    assert filled(sql, TableName("my-project", "ds", "t", "20200101")) == (
        "INSERT `my-project`.ds.t SELECT '{}', {other} FROM temp_ext"
    )
    assert filled("{dest_dataset}.{dest_table}", TableName("p", "1ds", "a-b c")) == "`p`.`1ds`.`a-b c`"
    assert filled("{dest_table}_staging", TableName("p", "ds", "t")) == "t_staging"


def test_the_external_table_is_exactly_the_batchs_files() -> None:
    found = listed("ds/t/x/a.csv", "ds/t/x/_metadata.csv")
    made = external_definition({"sourceFormat": "CSV", "sourceUris": ["REPLACEME"]}, found, FOLDER)
    assert made == {"sourceFormat": "CSV", "sourceUris": ["gs://b/ds/t/x/a.csv"]}


def test_hive_layouts_keep_what_the_user_says_and_derive_the_rest() -> None:
    found = listed("ds/t/x/dt=2020-01-01T00:00:00/c=a.b/f.csv", "ds/t/x/dt=2020-01-02/c=/f.csv")
    hive = external_definition({"hivePartitioningOptions": {"requirePartitionFilter": True}}, found, FOLDER)
    assert hive["hivePartitioningOptions"] == {
        "mode": "AUTO",
        "requirePartitionFilter": True,
        "sourceUriPrefix": "gs://b/ds/t/x/",
    }
    custom = {"mode": "CUSTOM", "sourceUriPrefix": "gs://b/ds/t/x/{dt:DATE}"}
    assert external_definition({"hivePartitioningOptions": custom}, found, FOLDER)["hivePartitioningOptions"] == custom
    with pytest.raises(BadConfig, match="lies in no key=value folder"):
        hive_prefix(listed("ds/t/x/f.csv").files)
    with pytest.raises(BadConfig, match="begin at"):
        hive_prefix(listed("ds/t/x/a=1/f.csv", "ds/t/x/y/a=1/f.csv").files)


def test_w12_too_many_files_become_a_wildcard_only_if_it_stands_for_the_same_files() -> None:
    many = [f"ds/t/x/part-{number:05d}.csv" for number in range(10_001)]
    assert source_uris(listed(*many), FOLDER) == ["gs://b/ds/t/x/*.csv"]
    with pytest.raises(BadInput, match="no wildcard stands for exactly these"):
        source_uris(listed(*many, "ds/t/x/_temporary/x.csv"), FOLDER)


def test_w17_labels_are_made_to_fit() -> None:
    labels = job_labels(
        {"Team Name": "Data & AI", "1st": "X" * 80}, bucket="my.Bucket", batch="Batch-ÄB.1", function=""
    )
    assert labels == {
        "team_name": "data___ai",
        "x1st": "x" * 63,
        "component": "event-based-gcs-ingest",
        "bucket-id": "my_bucket",
        "batch-id": "batch-_b_1",
    }
