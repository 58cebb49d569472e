"""Every way of uploading, with Google's client and with bare requests."""

import base64
import io
import json

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption
from tests.support.stored_files import stored_file

from ingestd.localcloud.faults import FaultKind

GRANULE = 256 * 1024
DATA = bytes(range(256)) * 6000  # 1.5 MB


def upload_url(service, bucket: storage.Bucket) -> str:
    return f"{service.url}/upload/storage/v1/b/{bucket.name}/o"


def start(service, bucket: storage.Bucket, name: str, **params: str) -> str:
    answer = requests.post(
        upload_url(service, bucket), params={"uploadType": "resumable", "name": name, **params}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["location"]


def put(session: str, data: bytes = b"", content_range: str = "", **headers: str) -> requests.Response:
    return requests.put(
        session, data=data, headers={"Content-Range": content_range, **headers}, timeout=60, allow_redirects=False
    )


@pytest.mark.parametrize("checksum", [None, "md5", "crc32c"])
def test_one_request_uploads(bucket: storage.Bucket, checksum: str | None) -> None:
    blob = bucket.blob("n")
    blob.upload_from_string(DATA, content_type="a/b", checksum=checksum)
    assert blob.download_as_bytes() == DATA
    assert blob.content_type == "a/b"


def test_a_chunked_resumable_upload(bucket: storage.Bucket, service) -> None:
    before = service.hooks.operations["uploads.write"]
    blob = bucket.blob("n", chunk_size=GRANULE)
    blob.metadata = {"k": "v"}
    blob.upload_from_file(io.BytesIO(DATA), content_type="a/b", checksum="crc32c")
    assert service.hooks.operations["uploads.write"] - before == 6
    seen = bucket.get_blob("n")
    assert (seen.size, seen.content_type, seen.metadata) == (len(DATA), "a/b", {"k": "v"})
    assert seen.download_as_bytes() == DATA


def test_an_empty_resumable_upload(bucket: storage.Bucket, service) -> None:
    bucket.blob("n", chunk_size=GRANULE).upload_from_file(io.BytesIO(b""))
    assert bucket.get_blob("n").size == 0
    session = start(service, bucket, "m")
    assert put(session, content_range="bytes */0").json()["size"] == "0"


def test_a_resumable_upload_of_unknown_length(bucket: storage.Bucket) -> None:
    with bucket.blob("n", chunk_size=GRANULE).open("wb") as writer:
        for at in range(0, len(DATA), 100_000):
            writer.write(DATA[at : at + 100_000])
    assert bucket.blob("n").download_as_bytes() == DATA


@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.DROP_RESPONSE])
@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_resumable_upload_recovers_from_a_failure(bucket: storage.Bucket, service, kind: FaultKind, at: int) -> None:
    """The client resends, or asks how far the server is, and the object is right in the end."""
    blob = bucket.blob("n", chunk_size=GRANULE)
    stream = io.BytesIO(DATA)
    read = stream.read
    pieces = 0

    def counted(size: int = -1) -> bytes:
        nonlocal pieces
        pieces += 1
        if pieces == at:
            service.fault("uploads.write", kind, status=503, times=1)
        return read(size)

    stream.read = counted
    blob.upload_from_file(stream, if_generation_match=0)
    assert pieces >= at
    assert service.hooks.plan.active() == []
    assert blob.download_as_bytes() == DATA


def test_a_failure_at_the_very_end_is_recovered_from(bucket: storage.Bucket, service) -> None:
    service.fault("objects.insert", status=503, times=1)
    blob = bucket.blob("n", chunk_size=GRANULE)
    blob.upload_from_file(io.BytesIO(DATA), if_generation_match=0)
    assert service.hooks.plan.active() == []
    assert blob.download_as_bytes() == DATA


def test_the_session_protocol_step_by_step(bucket: storage.Bucket, service) -> None:
    session = start(service, bucket, "n")
    status = put(session, content_range="bytes */*")
    assert (status.status_code, status.headers.get("range")) == (308, None)
    piece = put(session, DATA[:GRANULE], f"bytes 0-{GRANULE - 1}/*")
    assert (piece.status_code, piece.headers["range"]) == (308, f"bytes=0-{GRANULE - 1}")
    wrong = put(session, b"short", f"bytes {GRANULE}-{GRANULE + 99}/*")
    assert (wrong.status_code, "5 byte(s) in the request body" in wrong.text) == (400, True)
    gap = put(session, b"xyz", f"bytes {GRANULE + 5}-{GRANULE + 7}/*")
    assert (gap.status_code, "exceeds already uploaded size" in gap.text) == (400, True)
    quiet = put(session, content_range="bytes */*", **{"X-GUploader-No-308": "yes"})
    assert (quiet.status_code, quiet.headers["x-http-status-code-override"]) == (200, "308")
    last = put(session, DATA[GRANULE:], f"bytes {GRANULE}-{len(DATA) - 1}/{len(DATA)}")
    assert last.status_code == 200
    resource = last.json()
    assert (resource["size"], resource["name"]) == (str(len(DATA)), "n")
    assert put(session, content_range="bytes */*").json() == resource
    assert put(session, content_range=f"bytes */{len(DATA)}").json() == resource
    assert put(f"{session}nonsense", content_range="bytes */*").status_code == 404


def test_a_session_can_be_cancelled(bucket: storage.Bucket, service) -> None:
    session = start(service, bucket, "n")
    put(session, DATA[:GRANULE], f"bytes 0-{GRANULE - 1}/*")
    assert requests.delete(session, timeout=60).status_code == 499
    assert put(session, content_range="bytes */*").status_code == 499
    assert not bucket.blob("n").exists()


def test_a_resumable_upload_is_refused_at_the_start_and_at_the_end(bucket: storage.Bucket, service) -> None:
    session = start(service, bucket, "n", ifGenerationMatch="0")
    bucket.blob("n").upload_from_string("someone else")
    assert put(session, b"abc", "bytes 0-2/3").status_code == 412
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("n", chunk_size=GRANULE).upload_from_file(io.BytesIO(DATA), if_generation_match=0)
    assert bucket.blob("n").download_as_bytes() == b"someone else"


def test_an_upload_session_survives_a_restart(tmp_path, service) -> None:
    own = type(service)(tmp_path / "own")
    own.start()
    try:
        client = own.client()
        bucket = client.create_bucket("bucket")
        session = start(own, bucket, "n")
        put(session, DATA[:GRANULE], f"bytes 0-{GRANULE - 1}/*")
        client.close()
        own.stop()
        own.start()
        moved = own.url + session[session.index("/upload/") :]
        assert put(moved, content_range="bytes */*").headers["range"] == f"bytes=0-{GRANULE - 1}"
        assert put(moved, DATA[GRANULE:], f"bytes {GRANULE}-{len(DATA) - 1}/{len(DATA)}").status_code == 200
        client = own.client()
        assert client.bucket("bucket").blob("n").download_as_bytes() == DATA
        client.close()
    finally:
        own.stop()


@pytest.mark.parametrize(
    "claim",
    [
        {"headers": {"x-goog-hash": "crc32c=AAAAAA=="}},
        {"headers": {"x-goog-hash": "md5=AAAAAAAAAAAAAAAAAAAAAA=="}},
        {"headers": {"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}},
        {"resource": {"md5Hash": "AAAAAAAAAAAAAAAAAAAAAA=="}},
        {"resource": {"crc32c": "AAAAAA=="}},
    ],
)
def test_bytes_that_do_not_match_their_checksum_are_refused(bucket: storage.Bucket, service, claim) -> None:
    resource = {"name": "n", **claim.get("resource", {})}
    answer = multipart(service, bucket, resource, b"data", claim.get("headers", {}))
    assert answer.status_code == 400
    assert "doesn't match calculated" in answer.json()["error"]["message"]
    assert not bucket.blob("n").exists()


def multipart(
    service, bucket: storage.Bucket, resource: dict[str, object], media: bytes, headers: dict[str, str]
) -> requests.Response:
    head = f"--b\r\nContent-Type: application/json\r\n\r\n{json.dumps(resource)}\r\n--b\r\n".encode()
    body = head + b"Content-Type: text/plain\r\n\r\n" + media + b"\r\n--b--"
    headers = {"Content-Type": 'multipart/related; boundary="b"', **headers}
    return requests.post(f"{upload_url(service, bucket)}?uploadType=multipart", data=body, headers=headers, timeout=60)


def test_gclouds_multipart_dialect_is_understood(bucket: storage.Bucket, service) -> None:
    body = (
        b"--===============1==\nContent-Type: application/json\nMIME-Version: 1.0\n\n"
        b'{"name": "n", "contentType": "text/csv"}\n--===============1==\nContent-Type: text/csv\nMIME-Version: 1.0\n'
        b"Content-Transfer-Encoding: binary\n\na,b\r\n1,2\n\n--===============1==--"
    )
    answer = requests.post(
        f"{upload_url(service, bucket)}?uploadType=multipart",
        data=body,
        headers={"Content-Type": "multipart/related; boundary='===============1=='"},
        timeout=60,
    )
    assert answer.status_code == 200
    assert bucket.blob("n").download_as_bytes() == b"a,b\r\n1,2\n"


def test_a_base64_part_is_decoded(bucket: storage.Bucket, service) -> None:
    body = (
        b'--b\r\nContent-Type: application/json\r\n\r\n{"name": "n"}\r\n--b\r\nContent-Type: text/plain\r\n'
        b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.b64encode(b"\x00\xff") + b"\r\n--b--"
    )
    headers = {"Content-Type": "multipart/related; boundary=b"}
    url = f"{upload_url(service, bucket)}?uploadType=multipart"
    assert requests.post(url, data=body, headers=headers, timeout=60).status_code == 200
    assert bucket.blob("n").download_as_bytes() == b"\x00\xff"


def test_uploads_without_a_name_or_a_bucket_are_refused(bucket: storage.Bucket, service, client) -> None:
    nameless = requests.post(f"{upload_url(service, bucket)}?uploadType=media", data=b"x", timeout=60)
    assert (nameless.status_code, nameless.json()["error"]["errors"][0]["reason"]) == (400, "required")
    unknown = requests.post(f"{upload_url(service, bucket)}?uploadType=smoke&name=n", data=b"x", timeout=60)
    assert unknown.status_code == 400
    with pytest.raises(exceptions.NotFound):
        client.bucket("no-such-bucket").blob("n").upload_from_string("x")
    with pytest.raises(exceptions.BadRequest):
        bucket.blob("new\nline").upload_from_string("x")


def test_a_corrupted_download_is_noticed_by_the_client(bucket: storage.Bucket, service) -> None:
    """The hashes sent with a download are those of the object, so the client's own check means something."""
    blob = bucket.blob("n")
    blob.upload_from_string(b"x" * 200_000)
    path = stored_file(service.core, bucket.name, "n")
    path.write_bytes(b"y" * 200_000)
    with pytest.raises(DataCorruption):
        blob.download_as_bytes()
