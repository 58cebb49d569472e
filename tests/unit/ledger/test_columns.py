"""The load-state row of a batch."""

from datetime import timedelta

import pytest
from tests.support.records import START, done, failed, file, record

from ingestd.batch.marks import SuccessMark
from ingestd.batch.phases import Phase
from ingestd.batch.record import UNRESOLVED
from ingestd.ledger.columns import COLUMNS, common_folder, latest_sql, row_id, row_of, table_resource, tables_sql
from ingestd.model.objects import Generation
from ingestd.model.tables import parse_table


def row(of: object) -> dict[str, object]:
    return row_of(of, replica="r1", recorded=START)  # type: ignore[arg-type]


def test_a_row_has_every_column_and_no_other() -> None:
    assert list(row(done())) == [column.name for column in COLUMNS]


def test_no_column_is_a_keyword_that_a_query_would_have_to_quote() -> None:
    reserved = {"window", "rows", "range", "partition", "order", "group", "hash", "end", "all", "any", "in", "to"}
    assert not reserved & {column.name for column in COLUMNS}


def test_files_are_listed_once_the_batch_has_ended() -> None:
    assert row(record())["uris"] == []
    ended = row(done(file("x/1", 7), file("x/2", 9)))
    assert ended["uris"] == ["gs://b/x/1#7", "gs://b/x/2#9"]
    assert (ended["files"], ended["files_loaded"], ended["rows_loaded"], ended["bytes"]) == (2, 2, 4, 20)
    assert ended["first_event_at"] == (START - timedelta(minutes=9)).isoformat()


def test_a_list_of_very_many_files_stays_within_what_a_row_may_have() -> None:
    many = [file(f"{'x' * 200}/{number}", number + 1) for number in range(10_000)]
    ended = row(done(*many))
    listed = ended["uris"]
    assert isinstance(listed, list)
    assert 3_000 < len(listed) < 10_000
    assert sum(map(len, listed)) <= 1_000_000
    assert ended["files"] == 10_000


def test_a_failed_batch_says_why_and_which_partition_it_was_for() -> None:
    ended = row(failed())
    assert (ended["error"], ended["files_set_aside"], ended["rows_loaded"]) == ("bad", 1, None)
    assert (ended["destination"], ended["partition_id"]) == ("p.d.t", "20240501")


def test_a_batch_of_a_success_file_is_known_by_it() -> None:
    mark = SuccessMark("gs://b/d/t/run1/_SUCCESS", Generation(5))
    ended = row(done(file("d/t/run1/a.csv", 3), trigger=mark))
    assert ended["origin"] == "convention"
    assert ended["batch_key"] == "success:gs://b/d/t/run1/_SUCCESS#5"
    assert ended["source_prefix"] == "gs://b/d/t/run1/"
    assert ended["uris"] == ["gs://b/d/t/run1/_SUCCESS#5", "gs://b/d/t/run1/a.csv#3"]


def test_a_batch_whose_table_is_not_known_names_none() -> None:
    mark = SuccessMark("gs://b/d/2024-05-01/_SUCCESS", Generation(5))
    ended = row(record(trigger=mark, phase=Phase.FAILED, dest=UNRESOLVED, files=(), load={}, error="a date?"))
    assert (ended["destination"], ended["partition_id"], ended["job_ids"]) == (None, None, [])
    assert ended["source_prefix"] == "gs://b/d/2024-05-01/"
    older = row(record(trigger=mark, dest="d.2024-05-01", files=(), load={}))  # as the version before called it
    assert older["destination"] is None
    assert "WHERE destination IS NOT NULL GROUP BY destination" in tables_sql(parse_table("p.d.t"))


def test_a_repeated_row_has_the_same_id_and_a_later_one_another() -> None:
    assert row_id(row(done())) == row_id(row(done()))
    assert row_id(row(record())) != row_id(row(done()))


@pytest.mark.parametrize(
    ("names", "folder"),
    [
        (["a/b/1", "a/b/2"], "gs://b/a/b/"),
        (["a/b/1", "a/bc/2"], "gs://b/a/"),
        (["a/1", "b/2"], "gs://b/"),
        (["1"], "gs://b/"),
        (["a/b/c/1", "a/b/2", "a/b/d/e/3"], "gs://b/a/b/"),
    ],
)
def test_the_folder_that_files_share(names: list[str], folder: str) -> None:
    assert common_folder(file(name) for name in names) == folder


def test_files_of_several_buckets_share_no_folder() -> None:
    assert common_folder([file("a/1"), file("a/1", bucket="c")]) == ""


def test_the_table_is_partitioned_by_day_and_clustered() -> None:
    resource = table_resource()
    assert resource["timePartitioning"] == {"type": "DAY", "field": "updated_at"}
    assert resource["clustering"]["fields"][0] == "destination"
    assert latest_sql(parse_table("p.d.t")).startswith("SELECT * FROM `p.d.t` WHERE TRUE QUALIFY")
