"""google-cloud-storage, unmodified, against the local Cloud Storage: objects, metadata, copies, errors."""

import gzip
import threading
from collections import Counter
from datetime import UTC, datetime

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY

from ingestd.localcloud.faults import FaultKind

LARGE = 3_000_000
ODD_NAMES = ["a b/c", "a#b?c&d=e+f", "ünï/côdé/日本.json", "percent%2Fslash", "trailing/", "quote'\"<>", "~tilde!*()"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_of_all_kinds_survive_the_url(bucket: storage.Bucket, name: str) -> None:
    blob = bucket.blob(name)
    blob.upload_from_string("x")
    assert bucket.blob(name).download_as_bytes() == b"x"
    assert [found.name for found in bucket.list_blobs()] == [name]
    bucket.get_blob(name).patch()
    bucket.rename_blob(blob, name + "2")
    bucket.delete_blob(name + "2")
    assert list(bucket.list_blobs()) == []


def test_metadata_given_at_upload_comes_back(bucket: storage.Bucket) -> None:
    blob = bucket.blob("n")
    blob.metadata = {"key": "välue"}
    blob.cache_control = "no-cache"
    blob.content_disposition = "attachment"
    blob.content_language = "de"
    blob.custom_time = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    blob.upload_from_string(b"1,2", content_type="text/csv")
    seen = bucket.get_blob("n")
    assert seen.metadata == {"key": "välue"}
    assert (seen.content_type, seen.cache_control, seen.content_disposition) == ("text/csv", "no-cache", "attachment")
    assert (seen.content_language, seen.custom_time) == ("de", blob.custom_time)
    assert (seen.size, seen.metageneration, seen.storage_class) == (3, 1, "STANDARD")
    assert seen.generation == blob.generation
    assert abs((datetime.now(UTC) - seen.time_created).total_seconds()) < 60
    assert abs(seen.generation / 1e6 - seen.time_created.timestamp()) < 0.01
    assert seen.id == f"{bucket.name}/n/{seen.generation}"


def test_patch_and_update_change_metadata(bucket: storage.Bucket) -> None:
    blob = bucket.blob("n")
    blob.upload_from_string("x")
    blob.metadata = {"a": "1", "b": "2"}
    blob.patch()
    blob.metadata = {"a": None, "c": "3"}
    blob.patch(if_metageneration_match=2)
    seen = bucket.get_blob("n")
    assert (seen.metadata, seen.metageneration) == ({"b": "2", "c": "3"}, 3)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.patch(if_metageneration_match=2)
    seen.content_type = "a/b"
    seen.update()
    assert bucket.get_blob("n").content_type == "a/b"


@pytest.mark.parametrize("size", [0, 10, LARGE])
def test_downloads_whole_and_in_ranges(bucket: storage.Bucket, size: int) -> None:
    data = (b"0123456789" * (size // 10 + 1))[:size]
    blob = bucket.blob("n")
    blob.upload_from_string(data)
    assert blob.download_as_bytes() == data
    assert blob.download_as_bytes(raw_download=True, checksum="md5") == data
    if size:
        assert blob.download_as_bytes(start=3, end=6) == data[3:7]
        assert blob.download_as_bytes(start=5) == data[5:]
        assert blob.download_as_bytes(start=-4) == data[-4:]
        assert blob.download_as_bytes(end=size + 100) == data
        with pytest.raises(exceptions.RequestRangeNotSatisfiable):
            blob.download_as_bytes(start=size)
    chunked = bucket.blob("n", chunk_size=256 * 1024)
    assert chunked.download_as_bytes() == data
    with blob.open("rb") as reader:
        assert reader.read(7) == data[:7]


def test_range_headers_answer_as_http_says(bucket: storage.Bucket, service) -> None:
    bucket.blob("n").upload_from_string(b"0123456789")
    url = f"{service.url}/storage/v1/b/{bucket.name}/o/n?alt=media"

    def fetch(header: str) -> tuple[int, bytes, str | None]:
        answer = requests.get(url, headers={"Range": header}, timeout=60)
        return answer.status_code, answer.content, answer.headers.get("content-range")

    assert fetch("bytes=2-4") == (206, b"234", "bytes 2-4/10")
    assert fetch("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert fetch("bytes=-30") == (206, b"0123456789", "bytes 0-9/10")
    assert fetch("bytes=8-100") == (206, b"89", "bytes 8-9/10")
    assert fetch("bytes=nonsense") == (200, b"0123456789", None)
    status, body, content_range = fetch("bytes=10-")
    assert (status, content_range) == (416, "bytes */10")
    assert b"requestedRangeNotSatisfiable" in body
    assert fetch("bytes=-0")[0] == 416


def test_a_generation_is_downloaded_exactly(versioned: storage.Bucket) -> None:
    blob = versioned.blob("n")
    blob.upload_from_string("one")
    first = blob.generation
    blob.upload_from_string("two")
    assert versioned.blob("n", generation=first).download_as_bytes() == b"one"
    assert versioned.blob("n").download_as_bytes() == b"two"
    with pytest.raises(exceptions.NotFound):
        versioned.blob("n", generation=first + 1).download_as_bytes()


def test_preconditions_guard_every_write(bucket: storage.Bucket) -> None:
    blob = bucket.blob("lock")
    blob.upload_from_string("1", if_generation_match=0)
    generation = blob.generation
    with pytest.raises(exceptions.PreconditionFailed, match="pre-conditions"):
        bucket.blob("lock").upload_from_string("2", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").upload_from_string("2", if_generation_match=generation + 1)
    with pytest.raises(exceptions.PreconditionFailed) as refused:
        bucket.blob("lock").delete(if_generation_match=generation + 1)
    assert refused.value.errors[0]["reason"] == "conditionNotMet"
    with pytest.raises(exceptions.PreconditionFailed):
        blob.reload(if_metageneration_match=9)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").download_as_bytes(if_generation_match=generation + 1)
    with pytest.raises(exceptions.NotModified):
        blob.reload(if_generation_not_match=generation)
    blob.upload_from_string("2", if_generation_match=generation)
    blob.delete(if_generation_match=blob.generation)
    assert not blob.exists()


def test_etags_guard_reads(bucket: storage.Bucket) -> None:
    blob = bucket.blob("n")
    blob.upload_from_string(b"x" * LARGE)
    etag = blob.etag
    blob.reload(if_etag_match=[etag, "other"])
    assert blob.download_as_bytes(if_etag_match=etag) == b"x" * LARGE
    with pytest.raises(exceptions.NotModified):
        blob.reload(if_etag_not_match=etag)
    blob.metadata = {"k": "v"}
    blob.patch()
    assert blob.etag != etag
    with pytest.raises(exceptions.PreconditionFailed):
        blob.reload(if_etag_match=etag)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.download_as_bytes(if_etag_match=etag)


def test_a_name_that_is_not_utf8_is_refused(bucket: storage.Bucket, service) -> None:
    assert requests.get(f"{service.url}/storage/v1/b/{bucket.name}/o/%ff", timeout=60).status_code == 400


def test_sixteen_clients_racing_to_create_have_one_winner_per_name(service, bucket: storage.Bucket) -> None:
    names = [f"lock-{number}" for number in range(100)]
    wins: list[str] = []
    losses: list[int] = []

    def race() -> None:
        with requests.Session() as session:
            for name in names:
                answer = session.post(
                    f"{service.url}/upload/storage/v1/b/{bucket.name}/o",
                    params={"uploadType": "media", "name": name, "ifGenerationMatch": "0"},
                    data=threading.current_thread().name.encode(),
                    timeout=60,
                )
                if answer.status_code == 200:
                    wins.append(name)
                else:
                    losses.append(answer.status_code)

    threads = [threading.Thread(target=race) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(wins) == Counter(names)
    assert Counter(losses) == {412: 1500}


def test_copy_rewrite_rename_and_move(bucket: storage.Bucket, versioned: storage.Bucket) -> None:
    source = bucket.blob("source")
    source.metadata = {"k": "v"}
    source.upload_from_string(b"x" * LARGE, content_type="text/csv")
    copied = bucket.copy_blob(source, versioned, "copied", if_generation_match=0)
    assert copied.metadata == {"k": "v"}
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.copy_blob(source, versioned, "copied", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.copy_blob(source, versioned, "copied", if_source_generation_match=source.generation + 1)

    rewritten = versioned.blob("rewritten")
    token, done, total = rewritten.rewrite(source)
    assert (token, done, total) == (None, LARGE, LARGE)
    assert rewritten.download_as_bytes() == b"x" * LARGE
    assert rewritten.content_type == "text/csv"
    rewritten.update_storage_class("NEARLINE")
    assert versioned.get_blob("rewritten").storage_class == "NEARLINE"

    renamed = bucket.rename_blob(source, "renamed")
    assert [blob.name for blob in bucket.list_blobs()] == ["renamed"]
    bucket.move_blob(renamed, "moved")
    assert [blob.name for blob in bucket.list_blobs()] == ["moved"]
    assert bucket.get_blob("moved").size == LARGE


def test_compose(bucket: storage.Bucket) -> None:
    parts = []
    for number in range(4):
        part = bucket.blob(f"part{number}")
        part.upload_from_string(str(number) * 5)
        parts.append(part)
    whole = bucket.blob("whole")
    whole.content_type = "text/plain"
    whole.compose(parts, if_generation_match=0)
    assert whole.download_as_bytes() == b"00000111112222233333"
    assert (whole.component_count, whole.md5_hash, whole.content_type) == (4, None, "text/plain")
    with pytest.raises(exceptions.PreconditionFailed):
        whole.compose(parts, if_source_generation_match=[1, None, None, None])
    with pytest.raises(exceptions.BadRequest):
        whole.compose(parts[:1] * 33)


def test_versions_are_listed_and_restored(versioned: storage.Bucket) -> None:
    blob = versioned.blob("n")
    for text in ("one", "two"):
        blob.upload_from_string(text)
    versioned.delete_blob("n")
    assert list(versioned.list_blobs()) == []
    first, second = versioned.list_blobs(versions=True)
    assert first.generation < second.generation
    assert first.time_deleted is not None
    versioned.copy_blob(versioned.blob("n"), versioned, "n", source_generation=first.generation)
    assert versioned.blob("n").download_as_bytes() == b"one"
    assert len(list(versioned.list_blobs(versions=True))) == 3


def test_listing_in_all_its_forms(bucket: storage.Bucket) -> None:
    for name in ["a.csv", "b.json", "d/1.csv", "d/2.json", "d/e/3.csv", "f/", "f/4.csv"]:
        bucket.blob(name).upload_from_string("x")

    def names(**options: object) -> list[str]:
        return [blob.name for blob in bucket.list_blobs(**options)]

    assert names() == ["a.csv", "b.json", "d/1.csv", "d/2.json", "d/e/3.csv", "f/", "f/4.csv"]
    assert names(prefix="d/") == ["d/1.csv", "d/2.json", "d/e/3.csv"]
    assert names(start_offset="b", end_offset="d/2") == ["b.json", "d/1.csv"]
    assert names(match_glob="**.csv") == ["a.csv", "d/1.csv", "d/e/3.csv", "f/4.csv"]
    assert names(match_glob="d/*.{csv,json}") == ["d/1.csv", "d/2.json"]
    assert names(page_size=2) == names()
    assert names(max_results=3) == names()[:3]
    folded = bucket.list_blobs(delimiter="/")
    assert ([blob.name for blob in folded], sorted(folded.prefixes)) == (["a.csv", "b.json"], ["d/", "f/"])
    trailing = bucket.list_blobs(delimiter="/", include_trailing_delimiter=True)
    assert [blob.name for blob in trailing] == ["a.csv", "b.json", "f/"]
    paged = bucket.list_blobs(delimiter="/", page_size=1)
    assert ([blob.name for blob in paged], sorted(paged.prefixes)) == (["a.csv", "b.json"], ["d/", "f/"])
    slim = list(bucket.list_blobs(fields="items(name,size),nextPageToken"))
    assert [(blob.name, blob.size, blob.generation) for blob in slim[:1]] == [("a.csv", 1, None)]


def test_a_listing_shows_a_write_at_once(bucket: storage.Bucket) -> None:
    for number in range(20):
        bucket.blob(f"{number:02d}").upload_from_string("x")
        assert len(list(bucket.list_blobs())) == number + 1


def test_a_batch_answers_each_call_on_its_own(bucket: storage.Bucket, client: storage.Client) -> None:
    for number in range(5):
        bucket.blob(f"n{number}").upload_from_string("x")
    with client.batch():
        for number in range(3):
            bucket.delete_blob(f"n{number}")
        patched = bucket.blob("n3")
        patched.metadata = {"in": "batch"}
        patched.patch()
    assert patched.metageneration == 2
    assert [blob.name for blob in bucket.list_blobs()] == ["n3", "n4"]
    with pytest.raises(exceptions.NotFound), client.batch():
        bucket.delete_blob("n4")
        bucket.delete_blob("absent")
    assert [blob.name for blob in bucket.list_blobs()] == ["n3"]
    with client.batch(raise_exception=False) as batch:
        bucket.delete_blob("absent")
        bucket.delete_blob("n3")
    assert [response.status_code for response in batch._responses] == [404, 204]


def test_gzip_is_served_as_stored_or_unpacked(bucket: storage.Bucket, service) -> None:
    blob = bucket.blob("z.txt")
    blob.content_encoding = "gzip"
    blob.upload_from_string(gzip.compress(b"plain text"), content_type="text/plain")
    assert blob.download_as_bytes() == b"plain text"
    assert gzip.decompress(blob.download_as_bytes(raw_download=True)) == b"plain text"
    url = f"{service.url}/storage/v1/b/{bucket.name}/o/z.txt?alt=media"
    unpacked = requests.get(url, headers={"Accept-Encoding": "identity", "Range": "bytes=0-1"}, timeout=60)
    assert (unpacked.status_code, unpacked.content) == (200, b"plain text")
    assert "content-encoding" not in unpacked.headers
    assert unpacked.headers["x-goog-stored-content-encoding"] == "gzip"
    blob.cache_control = "no-transform"
    blob.patch()
    kept = requests.get(url, headers={"Accept-Encoding": "identity"}, timeout=60, stream=True)
    assert gzip.decompress(kept.raw.read(decode_content=False)) == b"plain text"


def test_holds_refuse_and_release(bucket: storage.Bucket) -> None:
    blob = bucket.blob("n")
    blob.upload_from_string("x")
    blob.temporary_hold = True
    blob.patch()
    with pytest.raises(exceptions.Forbidden, match="active Temporary hold"):
        blob.delete()
    blob.temporary_hold = False
    blob.patch()
    blob.delete()


def test_errors_look_like_googles(bucket: storage.Bucket, service) -> None:
    answer = requests.get(f"{service.url}/storage/v1/b/{bucket.name}/o/absent", timeout=60)
    message = f"No such object: {bucket.name}/absent"
    assert answer.status_code == 404
    assert answer.json() == {
        "error": {
            "code": 404,
            "message": message,
            "errors": [{"message": message, "domain": "global", "reason": "notFound"}],
        }
    }
    bucket.blob("n").upload_from_string("x")
    url = f"{service.url}/storage/v1/b/{bucket.name}/o/n"
    stale = requests.get(url, params={"ifGenerationMatch": "1"}, timeout=60).json()["error"]
    assert stale["errors"][0] == {
        "message": "At least one of the pre-conditions you specified did not hold.",
        "domain": "global",
        "reason": "conditionNotMet",
        "locationType": "header",
        "location": "If-Match",
    }
    bad = requests.get(url, params={"ifGenerationMatch": "x"}, timeout=60)
    assert (bad.status_code, bad.json()["error"]["errors"][0]["reason"]) == (400, "invalid")
    broken = requests.patch(url, data=b"{not json", timeout=60)
    assert (broken.status_code, broken.json()["error"]["errors"][0]["reason"]) == (400, "parseError")


@pytest.mark.parametrize(
    ("verb", "path", "feature"),
    [
        ("GET", "/b/{b}/o/n/acl", "object ACLs"),
        ("POST", "/b/{b}/o/n/restore?generation=1", "soft delete"),
        ("GET", "/b/{b}/o?softDeleted=true", "soft delete"),
        ("POST", "/b/{b}/folders", "folders"),
        ("POST", "/b/{b}/managedFolders", "managed folders"),
        ("GET", "/b/{b}/acl", "bucket ACLs"),
        ("GET", "/projects/p/hmacKeys", "HMAC keys"),
        ("PATCH", "/b/{b}/o/n?predefinedAcl=publicRead", "predefined ACLs"),
        ("POST", "/b/{b}/o/n/copyTo/b/{b}/o/m?destinationKmsKeyName=k", "Cloud KMS"),
    ],
)
def test_what_is_not_there_says_so(bucket: storage.Bucket, service, verb: str, path: str, feature: str) -> None:
    bucket.blob("n").upload_from_string("x")
    answer = requests.request(verb, f"{service.url}/storage/v1{path.format(b=bucket.name)}", timeout=60)
    assert answer.status_code == 501
    assert feature in answer.json()["error"]["message"]


def test_objects_are_readable_by_plain_path(bucket: storage.Bucket, service) -> None:
    bucket.blob("d/a b.txt").upload_from_string("x", content_type="text/plain")
    answer = requests.get(f"{service.url}/{bucket.name}/d/a%20b.txt", timeout=60)
    assert (answer.content, answer.headers["content-type"]) == (b"x", "text/plain")
    head = requests.head(f"{service.url}/{bucket.name}/d/a%20b.txt", timeout=60)
    assert (head.headers["x-goog-stored-content-length"], head.headers["content-length"]) == ("1", "1")
    missing = requests.get(f"{service.url}/{bucket.name}/none", timeout=60)
    assert (missing.status_code, b"<Code>NoSuchKey</Code>" in missing.content) == (404, True)


def test_planned_faults_reach_the_client(bucket: storage.Bucket, service) -> None:
    blob = bucket.blob("n")
    service.fault("objects.insert", status=403, reason="forbidden", message="rehearsed", times=1)
    with pytest.raises(exceptions.Forbidden, match="rehearsed"):
        blob.upload_from_string("x")
    assert not blob.exists()
    service.fault("objects.*", status=503, times=2)
    blob.upload_from_string("x", if_generation_match=0, retry=DEFAULT_RETRY)
    service.fault("objects.get", FaultKind.DELAY, seconds=0.3, times=1)
    before = datetime.now(UTC)
    blob.reload()
    assert (datetime.now(UTC) - before).total_seconds() >= 0.3


def test_a_lost_answer_was_still_done(bucket: storage.Bucket, service) -> None:
    service.fault("objects.insert", FaultKind.DROP_RESPONSE, resource="*/n", times=1)
    url = f"{service.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=n&ifGenerationMatch=0"
    with pytest.raises(requests.exceptions.RequestException):
        requests.post(url, data=b"x", timeout=60)
    assert bucket.blob("n").download_as_bytes() == b"x"
    assert requests.post(url, data=b"x", timeout=60).status_code == 412
