"""The three services as one cloud: notifications, completions, files, faults."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from google.api_core.exceptions import DeadlineExceeded, TooManyRequests
from google.cloud import bigquery
from google.cloud.storage.notification import BucketNotification
from tests.support.waiting import Patience

from ingestd.localcloud.cloud import LocalCloud
from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan

NDJSON = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON", autodetect=True)


@pytest.fixture
def pull(subscriber: Any, subscription: str) -> Callable[[int], list[Any]]:
    def messages(count: int, seconds: float = 10) -> list[Any]:
        """At least `count` messages, or what came in time; acknowledged."""
        found: list[Any] = []
        patience = Patience(seconds)
        while len(found) < count and not patience.look(len(found)):
            try:
                pulled = subscriber.pull(subscription=subscription, max_messages=100, timeout=1, retry=None)
            except DeadlineExceeded:
                continue
            found += [one.message for one in pulled.received_messages]
            if pulled.received_messages:
                ack_ids = [one.ack_id for one in pulled.received_messages]
                subscriber.acknowledge(subscription=subscription, ack_ids=ack_ids)
        return found

    return messages


@pytest.fixture
def notified(storage_client: Any, bucket: str, topic: str) -> Any:
    """A bucket that announces its changes on `topic`."""
    watched = storage_client.bucket(bucket)
    project, _, name = topic.removeprefix("projects/").partition("/topics/")
    BucketNotification(watched, name, topic_project=project, payload_format="JSON_API_V1").create()
    return watched


def test_an_object_extracted_by_bigquery_is_announced_like_any_other(
    bigquery_client: Any, notified: Any, dataset: str, pull: Callable[[int], list[Any]]
) -> None:
    notified.blob("in.json").upload_from_string('{"n": 1}\n')
    bigquery_client.load_table_from_uri(f"gs://{notified.name}/in.json", f"{dataset}.t", job_config=NDJSON).result()
    bigquery_client.extract_table(f"{dataset}.t", f"gs://{notified.name}/out-*.csv").result()
    announced = pull(2)
    assert [message.attributes["objectId"] for message in announced] == ["in.json", "out-000000000000.csv"]
    assert json.loads(announced[1].data)["size"] == str(notified.get_blob("out-000000000000.csv").size)


def test_a_withheld_notification_arrives_when_the_fault_is_over(
    notified: Any, faults: FaultPlan, pull: Callable[..., list[Any]]
) -> None:
    faults.add(Fault("storage", "notifications.publish", FaultKind.WITHHOLD, resource=f"{notified.name}/*"))
    notified.blob("late").upload_from_string("x")
    assert pull(1, 1) == []
    faults.clear()
    assert [message.attributes["objectId"] for message in pull(1)] == ["late"]


def test_a_notification_refused_by_pubsub_is_sent_again(
    cloud: LocalCloud, notified: Any, topic: str, faults: FaultPlan, pull: Callable[[int], list[Any]]
) -> None:
    faults.add(Fault("pubsub", "Publish", FaultKind.FAIL, resource=topic, times=2))
    notified.blob("kept").upload_from_string("x")
    assert [message.attributes["objectId"] for message in pull(1)] == ["kept"]
    assert faults.active() == []


def test_a_missing_file_fails_the_load_and_is_named(bigquery_client: Any, bucket: str, dataset: str) -> None:
    job = bigquery_client.load_table_from_uri(f"gs://{bucket}/nothing.json", f"{dataset}.t", job_config=NDJSON)
    error = job.exception()
    assert "Not found: URI" in str(error)
    assert job.error_result["reason"] == "notFound"
    assert f"gs://{bucket}/nothing.json" in job.error_result["message"]


def test_storage_trouble_reaches_a_load_as_a_backend_error(
    bigquery_client: Any, storage_client: Any, bucket: str, dataset: str, faults: FaultPlan
) -> None:
    storage_client.bucket(bucket).blob("a.json").upload_from_string('{"n": 1}\n')
    faults.add(Fault("storage", "objects.get", FaultKind.FAIL, resource=f"{bucket}/*"))
    job = bigquery_client.load_table_from_uri(f"gs://{bucket}/a.json", f"{dataset}.t", job_config=NDJSON)
    job.exception()
    assert job.error_result["reason"] == "backendError"


def test_faults_and_counters_are_there_over_http(cloud: LocalCloud, storage_client: Any, bucket: str) -> None:
    base = f"{cloud.endpoints.storage}/_ingestd"
    with httpx.Client(trust_env=False) as http:
        fault = {"service": "storage", "method": "buckets.get", "kind": "fail", "status": 429, "times": 1}
        assert http.post(f"{base}/faults", json={**fault, "resource": bucket}).status_code == 201
        with pytest.raises(TooManyRequests):
            storage_client.get_bucket(bucket, retry=None)
        assert http.get(f"{base}/faults").json() == {"faults": []}
        before = http.get(f"{base}/counters").json()["storage"]["operations"].get("buckets.get", 0)
        storage_client.get_bucket(bucket)
        assert http.get(f"{base}/counters").json()["storage"]["operations"]["buckets.get"] == before + 1
