"""What the acceptance kit does only on Google's cloud: the log sink and its writer, and the question for permissions.

Topics, buckets and tables are the local cloud's; Logging and Resource Manager, which it does not play, are played here
as far as their documented answers go.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.support.google import PROJECT

from ingestd.cli.acceptance import surroundings
from ingestd.cli.acceptance.estate import SINK_FILTER, Estate, new_run
from ingestd.cli.acceptance.preflight import NEW_DATASET, ON_BUCKET, ON_PROJECT, examine, missing
from ingestd.cli.acceptance.scenarios import SCENARIOS
from ingestd.cli.checkup import Mark
from ingestd.gcp.connect import connect
from ingestd.gcp.provisioning import Apis, Provisioner
from ingestd.model.errors import Fatal

pytestmark = pytest.mark.usefixtures("emulators")

WRITER = "serviceAccount:p1-2@gcp-sa-logging.iam.gserviceaccount.com"


class Google(ThreadingHTTPServer):
    """Logging's sinks, and a project that grants some permissions."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sinks: dict[str, dict[str, Any]] = {}
        self.granted: set[str] = set()
        self.refuses = False

    @property
    def apis(self) -> Apis:
        url = f"http://127.0.0.1:{self.server_port}"
        return Apis(f"{url}/v2", f"{url}/v1")


class _Handler(BaseHTTPRequestHandler):
    server: Google

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.refuses:
            self._answer(403, {"error": {"code": 403, "message": "The caller does not have permission"}})
        elif self.path == f"/v1/projects/{PROJECT}:testIamPermissions":
            self._answer(200, {"permissions": [one for one in body["permissions"] if one in self.server.granted]})
        elif self.path == f"/v2/projects/{PROJECT}/sinks?uniqueWriterIdentity=true":
            self.server.sinks[body["name"]] = body
            self._answer(200, {**body, "writerIdentity": WRITER})
        else:
            self._answer(404, {"error": {"message": self.path}})

    def do_DELETE(self) -> None:
        gone = self.server.sinks.pop(self.path.rpartition("/")[2], None)
        self._answer(404 if gone is None else 200, {})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def google() -> Iterator[Google]:
    with Google() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def provisioner(google: Google) -> Iterator[Provisioner]:
    with Provisioner(PROJECT, google.apis) as cloud:
        cloud.local = False
        yield cloud


async def test_the_sinks_own_writer_may_publish_and_both_go_again(
    provisioner: Provisioner, google: Google, bucket: str, unique: str, publisher: Any
) -> None:
    estate = Estate(PROJECT, bucket, unique, new_run())
    async with connect(PROJECT) as clients:
        await surroundings.make(estate, provisioner, clients, SCENARIOS, lambda _: None)
    sink = google.sinks[estate.completions]
    topic = f"projects/{PROJECT}/topics/{estate.completions}"
    assert (sink["destination"], sink["filter"]) == (f"pubsub.googleapis.com/{topic}", SINK_FILTER)
    policy = publisher.get_iam_policy(request={"resource": topic})
    assert [(one.role, list(one.members)) for one in policy.bindings] == [("roles/pubsub.publisher", [WRITER])]
    assert await surroundings.remove(estate, provisioner) == []
    assert google.sinks == {}
    assert not provisioner.topic(estate.completions)


async def test_what_cannot_be_removed_is_said_and_the_rest_goes(
    provisioner: Provisioner, google: Google, bucket: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate = Estate(PROJECT, bucket, unique, new_run())
    async with connect(PROJECT) as clients:
        await surroundings.make(estate, provisioner, clients, SCENARIOS, lambda _: None)

    def refuse(_: str) -> None:
        raise Fatal("403 you may not")

    monkeypatch.setattr(provisioner, "delete_sink", refuse)
    assert await surroundings.remove(estate, provisioner) == [f"log sink {estate.completions}: 403 you may not"]
    assert provisioner.dataset_location("", unique) is None
    assert not provisioner.topic(estate.notifications)


def test_permissions_that_are_missing_are_named_with_the_role_that_has_them(
    provisioner: Provisioner, google: Google, bucket: str, unique: str
) -> None:
    google.granted = {one for need in (*ON_PROJECT, NEW_DATASET) for one in need.permissions}
    checks = list(examine(provisioner, bucket, unique, "", spark=False))
    assert {one.mark for one in checks} == {Mark.OK}, checks
    google.granted -= {"pubsub.topics.setIamPolicy", "logging.sinks.create"}
    failed = [one for one in examine(provisioner, bucket, unique, "", spark=False) if one.mark is Mark.FAILED]
    assert [one.found for one in failed] == [
        "not permitted: pubsub.topics.setIamPolicy",
        "not permitted: logging.sinks.create",
    ]
    grant = f"gcloud projects add-iam-policy-binding {PROJECT} --member=user:YOU --role="
    assert [one.fix for one in failed] == [f"{grant}roles/pubsub.admin", f"{grant}roles/logging.configWriter"]


def test_a_question_that_is_refused_is_a_warning_and_the_run_will_tell(
    provisioner: Provisioner, google: Google, bucket: str, unique: str
) -> None:
    google.refuses = True
    checks = list(examine(provisioner, bucket, unique, "", spark=False))
    (doubt,) = [one for one in checks if one.mark is not Mark.OK]
    assert doubt.mark is Mark.WARNING
    assert "The caller does not have permission" in doubt.found
    assert "gcloud services enable cloudresourcemanager.googleapis.com" in doubt.fix


def test_rights_on_the_bucket_are_granted_on_the_bucket() -> None:
    (objects, notifications) = missing("gs://b", ON_BUCKET, frozenset({"storage.buckets.get"}), "grant gs://b")
    assert objects.fix == "grant gs://b --member=user:YOU --role=roles/storage.objectUser"
    assert notifications.found == "not permitted: storage.buckets.update"
