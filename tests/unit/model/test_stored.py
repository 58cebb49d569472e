"""What is read back from a bucket, or comes in from outside, is bounded where it is parsed."""

import ast
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.places import ROOT

from ingestd.model.errors import NewerVersion, Transient, UnreadableObject, leading
from ingestd.model.objects import ObjectRef
from ingestd.model.stored import document, instant, number, reading

REF = ObjectRef("ops", "journal/x.run")
SOURCE = ROOT / "src/ingestd"


@pytest.mark.parametrize(
    "content", [b"", b"junk", b"[]", b"null", b"\xff", b"{}", b'{"schema_version": true}', b"[" * 9999]
)
def test_what_is_no_document_of_ours_is_unreadable_and_named(content: bytes) -> None:
    with pytest.raises(UnreadableObject, match=r"gs://ops/journal/x\.run"), reading(REF):
        document(content, version=1)


def test_a_newer_version_is_told_apart() -> None:
    with pytest.raises(NewerVersion, match=r"gs://ops/journal/x.run.*schema_version 7"), reading(REF):
        document(b'{"schema_version": 7}', version=3)


@pytest.mark.parametrize("text", ["", "x", "9" * 5000, str(2**63), None, 1.5])
def test_a_label_that_is_no_number_of_64_bits_counts_as_absent(text: Any) -> None:
    assert number(text) == 0
    assert number("17") == 17


@pytest.mark.parametrize("text", ["", "soon", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", None, 17])
def test_a_label_that_is_no_moment_to_reckon_with_counts_as_absent(text: Any) -> None:
    assert instant(text) is None
    assert instant("2024-01-01") == datetime(2024, 1, 1, tzinfo=UTC)


async def test_an_object_too_large_to_be_ours_is_not_read() -> None:
    store = MemoryStore(ManualClock())
    await store.create(REF, b"x" * 100)
    with pytest.raises(UnreadableObject, match="100 bytes"):
        await store.read(REF, largest=99)
    assert (await store.read(REF, largest=100))[1].size == 100


def test_of_errors_that_came_together_the_known_kind_leads() -> None:
    inner = ExceptionGroup("", [ValueError("a bug"), Transient("503")])
    assert str(leading(ExceptionGroup("", [ExceptionGroup("", [KeyError("x")]), inner]))) == "503"
    assert isinstance(leading(ExceptionGroup("", [KeyError("x")])), KeyError)


def test_whatever_the_daemon_reads_from_a_bucket_has_a_limit() -> None:
    """Anyone may have put something huge there. Commands read what their user names."""
    asked_before = {"collect/success/lookup.py"}  # by its listing, for all files together
    found = []
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("cli/", "localcloud/")) or name in asked_before:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith("store.read")
                and "largest" not in {one.arg for one in node.keywords}
            ):
                found.append(f"{name}:{node.lineno}")
    assert found == []
