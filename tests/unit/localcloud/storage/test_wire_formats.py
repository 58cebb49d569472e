"""Field masks and multipart bodies, as clients write them."""

import pytest

from ingestd.localcloud.storage import StorageError
from ingestd.localcloud.storage.server.fields import parse_fields
from ingestd.localcloud.storage.server.multipart import Part, parse_multipart, render_multipart

PAGE = {
    "kind": "storage#objects",
    "nextPageToken": "t",
    "items": [
        {"name": "a", "size": "1", "metadata": {"k": "v", "l": "w"}},
        {"name": "b", "size": "2"},
    ],
}


BOTH = [{"name": "a", "size": "1"}, {"name": "b", "size": "2"}]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("kind", {"kind": "storage#objects"}),
        ("*", PAGE),
        ("items(name,size),kind", {"kind": "storage#objects", "items": BOTH}),
        ("items/name", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items/metadata/k", {"items": [{"metadata": {"k": "v"}}, {}]}),
        ("items(metadata(l))", {"items": [{"metadata": {"l": "w"}}, {}]}),
        ("items(name),items/size", {"items": BOTH}),
        ("*/name", {"kind": "storage#objects", "nextPageToken": "t", "items": [{"name": "a"}, {"name": "b"}]}),
        ("prefixes, kind", {"kind": "storage#objects"}),
    ],
)
def test_fields_select(mask: str, expected: dict[str, object]) -> None:
    assert parse_fields(mask).select(PAGE) == expected


@pytest.mark.parametrize("mask", ["items(", "items(name", "items)", ",", "a,,b", "/a", "items()"])
def test_a_broken_mask_is_refused(mask: str) -> None:
    with pytest.raises(StorageError) as error:
        parse_fields(mask)
    assert error.value.status == 400


MEDIA = b"\r\n--not-the-boundary\r\nbytes\x00\xff\r\n"


@pytest.mark.parametrize("line", [b"\r\n", b"\n"])
@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_multipart_takes_both_line_ends_and_any_quotes(line: bytes, quote: str) -> None:
    body = line.join(
        [b"--=-=b", b"Content-Type: application/json", b"", b'{"name": "n"}', b"--=-=b", b"content-type: text/csv", b""]
    )
    body += line + MEDIA + line + b"--=-=b--"
    parts = parse_multipart(f"multipart/related; boundary={quote}=-=b{quote}", body)
    assert [part.body for part in parts] == [b'{"name": "n"}', MEDIA]
    assert parts[1].headers == {"content-type": "text/csv"}


def test_an_empty_part_is_empty() -> None:
    parts = parse_multipart(
        "multipart/related; boundary=b", b"--b\r\nA: 1\r\n\r\n{}\r\n--b\r\nA: 2\r\n\r\n\r\n--b--\r\n"
    )
    assert [part.body for part in parts] == [b"{}", b""]


def test_a_rendered_multipart_parses_back() -> None:
    parts = [Part({"a": "1"}, b"one"), Part({"b": "2"}, b"\r\n\r\ntwo\n")]
    assert parse_multipart("multipart/mixed; boundary=xyz", render_multipart("xyz", parts)) == parts


@pytest.mark.parametrize("body", [b"", b"--c\r\n\r\n--c--", b"--b\r\nA: 1\r\n\r\nno end"])
def test_a_broken_multipart_is_refused(body: bytes) -> None:
    with pytest.raises(StorageError) as error:
        parse_multipart("multipart/related; boundary=b", body)
    assert error.value.status == 400
