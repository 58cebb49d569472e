import pytest
from tests.support.memory_objects import MemoryObjects

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.files.objects import check_source_uri, matches


@pytest.mark.parametrize(
    ("pattern", "uri", "expected"),
    [
        ("gs://b/a*", "gs://b/a/b/c.json", True),
        ("gs://b/*.json", "gs://b/x/y.json", True),
        ("gs://b/a*a", "gs://b/a", False),
        ("gs://b/a.json", "gs://b/a.json", True),
        ("gs://b/a.json", "gs://b/a.json2", False),
        ("gs://b/a[1]*", "gs://b/a[1]x", True),
        ("gs://b/a*b*c", "gs://b/a-b-c", True),
    ],
)
def test_a_star_matches_any_characters_including_slashes(pattern: str, uri: str, expected: bool) -> None:
    assert matches(pattern, uri) is expected


def test_matches_come_in_name_order() -> None:
    objects = MemoryObjects({"gs://b/2": b"xx", "gs://b/1": b"x", "gs://c/0": b""})
    assert [(item.uri, item.size) for item in objects.match("gs://b/*")] == [("gs://b/1", 1), ("gs://b/2", 2)]
    assert objects.match("gs://b/none") == []


@pytest.mark.parametrize("uri", ["s3://b/x", "gs://b", "gs://b*/x", "gs://b/a*b*", "/tmp/x"])
def test_uris_bigquery_refuses_are_refused(uri: str) -> None:
    with pytest.raises(BigQueryError):
        check_source_uri(uri)
