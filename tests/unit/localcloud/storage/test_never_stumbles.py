"""Whatever arrives, the server answers: no request makes it raise anything but what it means to."""

import asyncio

import hypothesis.strategies as st
import orjson
from hypothesis import HealthCheck, given, settings

from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage import StorageCore
from ingestd.localcloud.storage.server import make_handler

RELAXED = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["", "n", "bucket", "STANDARD", "1"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "enabled", "name"]), inner, max_size=2)
    ),
    max_leaves=4,
)
FIELDS = st.sampled_from(
    [
        "name",
        "contentType",
        "metadata",
        "customTime",
        "temporaryHold",
        "storageClass",
        "versioning",
        "labels",
        "location",
        "lifecycle",
        "softDeletePolicy",
        "retentionPolicy",
        "iamConfiguration",
        "defaultEventBasedHold",
        "sourceObjects",
        "destination",
        "topic",
        "event_types",
        "payload_format",
        "custom_attributes",
        "object_name_prefix",
        "bindings",
        "etag",
        "crc32c",
        "md5Hash",
        "cors",
        "acl",
    ]
)
BODIES = st.one_of(
    st.dictionaries(FIELDS, VALUES, max_size=4).map(orjson.dumps), VALUES.map(orjson.dumps), st.binary(max_size=40)
)
PATHS = st.sampled_from(
    [
        "/",
        "/b",
        "/storage/v1/b",
        "/storage/v1/b/bucket",
        "/storage/v1/b/bucket/o",
        "/storage/v1/b/bucket/o/n",
        "/bucket/n",
        "/batch",
        "/storage/v1/b/bucket/o/n/compose",
        "/storage/v1/b/bucket/o/n/rewriteTo/b/bucket/o/m",
        "/storage/v1/b/bucket/iam",
        "/storage/v1/b/bucket/o/n/copyTo/b/bucket/o/m",
        "/storage/v1/b/bucket/o/n/moveTo/o/m",
        "/storage/v1/b/bucket/o/%ff",
        "/storage/v1/b/bucket/notificationConfigs",
        "/storage/v1/b/bucket/notificationConfigs/x",
        "/upload/storage/v1/b/bucket/o",
        "/download/storage/v1/b/bucket/o/n",
        "/storage/v1/b/bucket/iam/testPermissions",
        "/storage/v1/projects/p/serviceAccount",
        "/storage/v1/projects",
        "/storage/v1/b/bucket/storageLayout",
    ]
)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "uploadType",
            "name",
            "alt",
            "project",
            "generation",
            "ifGenerationMatch",
            "ifMetagenerationNotMatch",
            "maxResults",
            "pageToken",
            "matchGlob",
            "delimiter",
            "prefix",
            "versions",
            "fields",
            "upload_id",
            "sourceGeneration",
            "startOffset",
            "contentEncoding",
        ]
    ),
    st.sampled_from(["", "0", "1", "-1", "x", "media", "multipart", "resumable", "true", "n", "[", "{", "%", "/", "*"]),
    max_size=4,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "content-type",
            "content-range",
            "content-encoding",
            "x-goog-hash",
            "content-md5",
            "range",
            "if-match",
            "if-none-match",
            "x-http-method-override",
            "x-upload-content-length",
            "x-goog-if-generation-match",
            "accept-encoding",
        ]
    ),
    st.sampled_from(
        ["", "multipart/related; boundary=b", "bytes 0-1/2", "bytes */*", "gzip", "crc32c=x,md5", "bytes=0-", "*", "-1"]
    ),
    max_size=3,
)


# Requests that reach the deep end, whatever their bodies say.
OPERATIONS = st.sampled_from(
    [
        ("POST", "/storage/v1/b", {"project": "p"}),
        ("PATCH", "/storage/v1/b/bucket", {}),
        ("PUT", "/storage/v1/b/bucket", {}),
        ("PUT", "/storage/v1/b/bucket/iam", {}),
        ("POST", "/storage/v1/b/bucket/notificationConfigs", {}),
        ("PATCH", "/storage/v1/b/bucket/o/n", {}),
        ("PUT", "/storage/v1/b/bucket/o/n", {}),
        ("POST", "/storage/v1/b/bucket/o/n/compose", {}),
        ("POST", "/storage/v1/b/bucket/o/n/rewriteTo/b/bucket/o/m", {}),
        ("POST", "/upload/storage/v1/b/bucket/o", {"uploadType": "resumable"}),
        ("POST", "/upload/storage/v1/b/bucket/o", {"uploadType": "multipart"}),
        ("POST", "/upload/storage/v1/b/bucket/o", {"uploadType": "media", "name": "n"}),
    ]
)


def answer_of(core: StorageCore, request: Request) -> Response:
    answer = make_handler(core)(request)
    if isinstance(answer, Response):
        return answer

    async def settle() -> Response:
        return await answer

    return asyncio.run(settle())


def check(
    core: StorageCore, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
) -> None:
    if "bucket" not in core._state.buckets:
        core.buckets.insert({"name": "bucket"})
    request = Request(method, path, "&".join(f"{key}={value}" for key, value in query.items()), headers, body, "host")
    answer = answer_of(core, request)
    assert 200 <= answer.status < 600
    assert answer.status != 500
    if answer.headers.get("content-type", "").startswith("application/json"):
        orjson.loads(answer.body)
    if "bucket" in core._state.buckets:
        # What was taken must not trip the next reader.
        assert answer_of(core, Request("GET", "/storage/v1/b/bucket", "", {}, b"", "host")).status == 200
        assert answer_of(core, Request("GET", "/storage/v1/b/bucket/o", "", {}, b"", "host")).status == 200


@given(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]), PATHS, QUERIES, HEADERS, BODIES)
@RELAXED
def test_every_request_has_an_answer(core: StorageCore, method, path, query, headers, body) -> None:
    check(core, method, path, query, headers, body)


@given(OPERATIONS, st.dictionaries(FIELDS, VALUES, max_size=4))
@RELAXED
def test_every_resource_is_taken_or_refused(core: StorageCore, operation, resource) -> None:
    method, path, query = operation
    core.write("bucket", "n", b"x")
    body = orjson.dumps(resource)
    headers = {}
    if query.get("uploadType") == "multipart":
        headers = {"content-type": "multipart/related; boundary=b"}
        body = b"--b\r\n\r\n" + body + b"\r\n--b\r\n\r\nmedia\r\n--b--"
    check(core, method, path, query, headers, body)
    core.objects.patch("bucket", "n", {"temporaryHold": False, "eventBasedHold": False})
