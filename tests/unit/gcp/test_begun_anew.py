"""Uploads in parts and long copies that the service forgot half-way: they begin anew, and do not fail for good."""

import base64
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import orjson
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Client
from tests.support.answering import answering

from ingestd.gcp.rest import Rest, Tokens, connections
from ingestd.gcp.session import Session
from ingestd.gcp.storage import GcsStore
from ingestd.gcp.threads import Threads
from ingestd.model.errors import NotFound
from ingestd.model.objects import ObjectRef
from ingestd.retry import Retrier, RetryPolicy

SIZE = 9 * 2**20  # more than the client sends at once
REF = ObjectRef("b", "o")
COPIED = {"totalBytesRewritten": "1", "objectSize": "2"}


class Storage:
    """Cloud Storage, as far as an upload or a copy goes. `answers`: what it says first, of parts and of copies."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[str] = []
        self.missing = False
        self.url = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(f"{method} {path}")
        if self.missing:
            return 404, {}, b'{"error": {"message": "The specified bucket does not exist."}}'
        if method == "POST" and "uploadType=resumable" in path:
            return 200, {"Location": f"{self.url}/session"}, b"{}"
        if method == "GET":
            return 200, {}, orjson.dumps({"generation": "7", "size": "1", "crc32c": "x"})
        if self.answers:
            return self.answers.pop(0)
        checksum = google_crc32c.value(body).to_bytes(4, "big")
        made = {"generation": "9", "crc32c": base64.b64encode(checksum).decode()}
        return 200, {}, orjson.dumps({"done": True, "resource": made, **COPIED} if "rewriteTo" in path else made)


@pytest.fixture
def storage() -> Iterator[Storage]:
    one = Storage()
    with answering(lambda asked: one.answer(asked.method, asked.path, asked.body)) as one.url:
        yield one


@pytest.fixture
async def store(storage: Storage) -> AsyncIterator[GcsStore]:
    credentials: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
    threads = Threads("test", 2)
    session = Session(credentials, 2)
    client = Client(project="p", credentials=credentials, _http=session, client_options={"api_endpoint": storage.url})
    async with connections(2, silence=30) as calls:
        yield GcsStore(client, Rest(calls, Tokens(credentials, threads)), threads, Retrier(RetryPolicy(attempts=3)))
    await threads.close()
    session.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "part.parquet"
    path.write_bytes(bytes(SIZE))
    return path


@pytest.mark.parametrize(
    "said",
    [
        (410, {}, b""),
        (404, {}, b"Not Found"),
        (308, {}, b""),
        (308, {"Range": "bytes=0-262143"}, b""),
        (503, {}, b'{"error": "unavailable"}'),
    ],
    ids=["gone", "forgotten", "nothing taken", "a part of a part taken", "away"],
)
async def test_an_upload_that_was_lost_begins_anew(storage: Storage, store: GcsStore, file: Path, said: Any) -> None:
    storage.answers = [said]
    assert await store.upload(REF, file) == 9
    sent = [one.split()[0] for one in storage.asked]
    assert [method for method in sent if method != "GET"] == ["POST", "PUT"] * 2


async def test_an_upload_to_a_bucket_that_is_missing_says_so(storage: Storage, store: GcsStore, file: Path) -> None:
    storage.missing = True
    with pytest.raises(NotFound, match="bucket does not exist"):
        await store.upload(REF, file)
    assert len([one for one in storage.asked if one.startswith("POST")]) == 1


async def test_a_copy_whose_token_was_lost_begins_anew(storage: Storage, store: GcsStore) -> None:
    more = orjson.dumps({"done": False, "rewriteToken": "t", **COPIED})
    storage.answers = [(200, {}, more), (410, {}, b"")]
    assert await store.copy(REF, ObjectRef("b", "copy")) == 9
    tokens = [re.search(r"rewriteToken=(\w+)", one) for one in storage.asked if "rewriteTo/" in one]
    assert [bool(token) for token in tokens] == [False, True, False]
