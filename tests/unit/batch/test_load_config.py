"""What a file's name tells of how it is to be read."""

import pytest

from ingestd.batch.load_config import source_format

JSON = "NEWLINE_DELIMITED_JSON"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("in/a.json", JSON),
        ("in/a.csv.JSON.gz", JSON),
        ("in/a", None),
        ("in/a.txt", None),
        ("v1.5/a", None),
        # Parts, as Dataflow and log rotation name them. bqtail knows them, and as CSV their rows are none.
        ("in/events.json-00000-of-00005", JSON),
        ("in/events.avro-00000-of-00005", "AVRO"),
        ("in/events.json-00000-of-00005.gz", JSON),
        ("in/events.json.2024-05-01T12:00:00Z", JSON),
        ("in/1.5.parquet_3", "PARQUET"),
        ("in/a.csv.1.json.2", JSON),
        # What says something else is no part's number.
        ("in/a.json.bak", None),
        ("in/a.json-2.txt", None),
        ("in/a.json2", None),
        ("in/json-1", None),
    ],
)
def test_a_name_tells_the_format_of_a_file_and_of_a_part_of_it(name: str, told: str | None) -> None:
    assert source_format(name) == told
