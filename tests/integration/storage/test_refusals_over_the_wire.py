"""Requests that are wrong in some way: each is refused with the status and words a client can act on."""

import gzip
import json

import pytest
import requests
from google.cloud import storage

from ingestd.localcloud.faults import FaultKind

BAD_MULTIPART = b"--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b--"


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "said"),
    [
        ("GET", "/storage/v1/b", None, 400, "Required parameter: project"),
        ("POST", "/storage/v1/b", {"name": "bucket-without-project"}, 400, "Required parameter: project"),
        ("POST", "/storage/v1/b?project=p", {"name": "odd", "storageClass": "WARM"}, 400, "WARM"),
        ("DELETE", "/storage/v1/b", None, 404, "Not Found"),
        ("POST", "/storage/v1/b/{b}", None, 404, "Not Found"),
        ("GET", "/storage/v1/b/{b}/nonsense", None, 404, "Not Found"),
        ("GET", "/storage/v1/nonsense", None, 404, "Not Found"),
        ("GET", "/storage/v1/projects/p/nonsense", None, 404, "Not Found"),
        ("POST", "/storage/v1/channels/stop", {}, 501, "channels"),
        ("POST", "/storage/v1/b/{b}/o", {"name": "n"}, 501, "/upload"),
        ("DELETE", "/storage/v1/b/{b}/o", None, 404, "Not Found"),
        ("POST", "/storage/v1/b/{b}/o/n", None, 404, "Not Found"),
        ("GET", "/storage/v1/b/{b}/o/n/nonsense", None, 404, "Not Found"),
        ("GET", "/storage/v1/b/{b}/o/n?alt=proto", None, 501, "alt=proto"),
        ("GET", "/storage/v1/b/{b}/o?maxResults=-1", None, 400, "maxResults"),
        ("GET", "/storage/v1/b/{b}/o?maxResults=x", None, 400, "maxResults"),
        ("GET", "/storage/v1/b/{b}/o?matchGlob=*&delimiter=x", None, 400, "delimiter"),
        ("GET", "/storage/v1/b/{b}/o?filter=contexts", None, 501, "filters"),
        ("GET", "/storage/v1/b/{b}/o?fields=items(", None, 400, "field selection"),
        ("GET", "/storage/v1/b/{b}/o/n?softDeleted=true", None, 501, "soft delete"),
        ("PATCH", "/storage/v1/b/{b}/o/n", {"contentType": 3}, 400, "contentType"),
        ("PATCH", "/storage/v1/b/{b}/o/n", {"temporaryHold": "yes"}, 400, "temporaryHold"),
        ("PATCH", "/storage/v1/b/{b}/o/n", {"metadata": "x"}, 400, "metadata"),
        ("PATCH", "/storage/v1/b/{b}/o/n", {"metadata": {"k": 1}}, 400, "metadata.k"),
        ("PATCH", "/storage/v1/b/{b}/o/n", {"retention": {"mode": "Locked"}}, 501, "object retention"),
        ("PATCH", "/storage/v1/b/{b}/o/n", [1], 400, "Parse Error"),
        ("POST", "/storage/v1/b/{b}/o/n/rewriteTo/b/{b}/o/m?rewriteToken=t", {}, 400, "rewrite token"),
        ("POST", "/storage/v1/b/{b}/o/n/rewriteTo/b/{b}/o/m", {"storageClass": "WARM"}, 400, "WARM"),
        ("POST", "/storage/v1/b/{b}/o/n/compose", {"sourceObjects": [{}]}, 400, "needs a name"),
        (
            "POST",
            "/storage/v1/b/{b}/o/n/compose",
            {"sourceObjects": [{"name": "n", "generation": "x"}]},
            400,
            "generation",
        ),
        ("PATCH", "/storage/v1/b/{b}", {"versioning": True}, 400, "versioning"),
        ("PATCH", "/storage/v1/b/{b}", {"labels": ["x"]}, 400, "labels"),
        ("PATCH", "/storage/v1/b/{b}", {"retentionPolicy": "x"}, 501, "retention policies"),
        (
            "POST",
            "/storage/v1/b/{b}/notificationConfigs",
            {"topic": "projects/p/topics/t", "custom_attributes": "x"},
            400,
            "custom attributes",
        ),
        ("POST", "/storage/v1/b/{b}/o/n/compose", {"deleteSourceObjects": True}, 501, "deletion of the sources"),
        ("GET", "/upload/storage/v1/b/{b}/o?uploadType=media&name=n", None, 404, "Not Found"),
        ("POST", "/upload/storage/v1/b/{b}/x?uploadType=media&name=n", None, 404, "Not Found"),
        ("POST", "/upload/storage/v1/b/{b}/o?uploadType=multipart", BAD_MULTIPART, 400, "two parts"),
        ("GET", "/download/storage/v1/b/{b}/o", None, 404, "Not Found"),
        ("POST", "/batch/storage/v1", b"", 400, "multipart body"),
        ("PUT", "/{b}/n", b"x", 501, "XML API"),
        ("GET", "/", None, 404, "Not Found"),
    ],
)
def test_a_wrong_request_is_told_why(service, bucket: storage.Bucket, verb, path, body, status, said) -> None:
    bucket.blob("n").upload_from_string("kept")
    data = body if isinstance(body, bytes) or body is None else json.dumps(body)
    headers = {"Content-Type": "multipart/related; boundary=b"}
    answer = requests.request(
        verb, service.url + path.replace("{b}", bucket.name), data=data, headers=headers, timeout=60
    )
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert bucket.blob("n").download_as_bytes() == b"kept"
    assert [blob.name for blob in bucket.list_blobs()] == ["n"]


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({"Content-Range": "lines 1-2/3"}, 400, "Content-Range"),
        ({"Content-Range": "bytes 0-9/10"}, 400, "3 byte(s) in the request body"),
        ({"x-goog-hash": "crc32c=AAAAAA=="}, 400, "CRC32C"),
    ],
)
def test_a_wrong_piece_of_an_upload_is_told_why(service, bucket: storage.Bucket, headers, status, said) -> None:
    url = f"{service.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=resumable&name=n"
    refused = requests.post(url, headers={"X-Upload-Content-Length": "many"}, timeout=60)
    assert refused.status_code == 400
    session = requests.post(url, headers={"X-Upload-Content-Length": "3"}, timeout=60).headers["location"]
    assert requests.get(session, timeout=60).status_code == 404
    answer = requests.put(session, data=b"abc", headers=headers, timeout=60)
    assert (answer.status_code, said in answer.text) == (status, True)
    assert requests.put(session, data=b"abc", timeout=60).json()["size"] == "3"


def test_compressed_requests_are_unpacked(service, bucket: storage.Bucket) -> None:
    bucket.blob("n").upload_from_string("x")
    url = f"{service.url}/storage/v1/b/{bucket.name}/o/n"
    headers = {"Content-Encoding": "gzip"}
    patch = gzip.compress(json.dumps({"cacheControl": "no-store"}).encode())
    assert requests.patch(url, data=patch, headers=headers, timeout=60).json()["cacheControl"] == "no-store"
    broken = requests.patch(url, data=b"not gzip", headers=headers, timeout=60)
    assert (broken.status_code, "gzip" in broken.text) == (400, True)


def test_customer_keys_are_refused(service, bucket: storage.Bucket) -> None:
    url = f"{service.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=n"
    answer = requests.post(url, data=b"x", headers={"x-goog-encryption-algorithm": "AES256"}, timeout=60)
    assert (answer.status_code, "encryption keys" in answer.text) == (501, True)


def test_a_method_override_is_followed(service, bucket: storage.Bucket) -> None:
    bucket.blob("n").upload_from_string("x")
    answer = requests.post(
        f"{service.url}/storage/v1/b/{bucket.name}/o/n",
        json={"contentType": "a/b"},
        headers={"X-HTTP-Method-Override": "PATCH"},
        timeout=60,
    )
    assert answer.json()["contentType"] == "a/b"


def test_what_claims_to_be_gzip_and_is_not_is_served_as_it_is(service, bucket: storage.Bucket) -> None:
    blob = bucket.blob("n")
    blob.content_encoding = "gzip"
    blob.upload_from_string("plainly not")
    url = f"{service.url}/{bucket.name}/n"
    answer = requests.get(url, headers={"Accept-Encoding": "identity"}, timeout=60, stream=True)
    assert answer.raw.read(decode_content=False) == b"plainly not"


def test_reads_by_plain_path_have_conditions_and_xml_errors(service, bucket: storage.Bucket) -> None:
    blob = bucket.blob("n")
    blob.upload_from_string("x")
    url = f"{service.url}/{bucket.name}/n"

    def fetch(where: str, **headers: str) -> tuple[int, bool]:
        answer = requests.get(where, headers={k.replace("_", "-"): v for k, v in headers.items()}, timeout=60)
        return answer.status_code, answer.headers.get("content-type", "").startswith("application/xml")

    assert fetch(url, x_goog_if_generation_match=str(blob.generation)) == (200, False)
    assert fetch(url, x_goog_if_generation_match="1") == (412, True)
    assert fetch(url, If_None_Match=blob.etag) == (304, False)
    assert b"NoSuchBucket" in requests.get(f"{service.url}/no-such-bucket/n", timeout=60).content


def batch(service, *calls: str) -> requests.Response:
    parts = "".join(
        f"--b\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n{call}\r\n\r\n\r\n"
        for number, call in enumerate(calls)
    )
    return requests.post(
        f"{service.url}/batch/storage/v1",
        data=f"{parts}--b--",
        headers={"Content-Type": "multipart/mixed; boundary=b"},
        timeout=60,
    )


def test_a_batch_refuses_media_nonsense_and_too_many_calls(service, bucket: storage.Bucket) -> None:
    bucket.blob("n").upload_from_string("x")
    path = f"/storage/v1/b/{bucket.name}/o/n"
    service.fault("objects.get", status=429, reason="rateLimitExceeded", times=1)
    service.fault("objects.get", FaultKind.DELAY, seconds=0.01, times=1)
    answer = batch(
        service, f"GET {path} HTTP/1.1", f"GET {path} HTTP/1.1", f"GET {path}?alt=media HTTP/1.1", "nonsense"
    )
    statuses = [line.split()[1] for line in answer.text.splitlines() if line.startswith("HTTP/1.1")]
    assert statuses == ["429", "200", "400", "400"]
    assert "Content-ID: <response-1>" in answer.text
    assert batch(service, *[f"GET {path} HTTP/1.1"] * 101).status_code == 400
