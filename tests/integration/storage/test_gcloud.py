"""`gcloud storage`, as installed, against the local Cloud Storage."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from google.cloud import storage
from tests.support.google import gcloud_environment

from ingestd.localcloud.storage import StorageError

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="the Google Cloud SDK (gcloud) is not installed"),
]


@pytest.fixture(scope="module")
def gcloud(service, tmp_path_factory: pytest.TempPathFactory):
    """Runs `gcloud storage …` with a configuration of its own and no credentials."""
    environment = {
        **os.environ,
        **gcloud_environment(tmp_path_factory.mktemp("gcloud")),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{service.url}/storage/v1/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": "test-project",
        # One process: starting a pool costs more than these few files.
        "CLOUDSDK_STORAGE_PROCESS_COUNT": "1",
        "CLOUDSDK_STORAGE_THREAD_COUNT": "2",
    }

    def run(*arguments: str) -> str:
        done = subprocess.run(
            ["gcloud", "storage", *arguments], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_files_go_up_are_listed_read_moved_and_removed(gcloud, bucket: storage.Bucket, tmp_path: Path) -> None:
    url = f"gs://{bucket.name}"
    (tmp_path / "one file.txt").write_text("first\n")
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    gcloud("cp", str(tmp_path / "one file.txt"), str(tmp_path / "two.csv"), f"{url}/in/")
    assert sorted(blob.name for blob in bucket.list_blobs()) == ["in/one file.txt", "in/two.csv"]
    assert gcloud("ls", f"{url}/in/").split("\n")[:2] == [f"{url}/in/one file.txt", f"{url}/in/two.csv"]
    assert gcloud("cat", f"{url}/in/two.csv") == "a,b\n1,2\n"
    gcloud("mv", f"{url}/in/two.csv", f"{url}/done/two.csv")
    assert sorted(blob.name for blob in bucket.list_blobs()) == ["done/two.csv", "in/one file.txt"]
    gcloud("rm", f"{url}/**")
    assert list(bucket.list_blobs()) == []


def test_a_large_file_goes_up_and_comes_back_whole(gcloud, bucket: storage.Bucket, tmp_path: Path) -> None:
    data = os.urandom(12_000_000)
    (tmp_path / "large").write_bytes(data)
    gcloud("cp", str(tmp_path / "large"), f"gs://{bucket.name}/large")
    assert bucket.blob("large").download_as_bytes() == data
    gcloud("cp", f"gs://{bucket.name}/large", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data


def test_buckets_are_made_described_and_removed(gcloud, service) -> None:
    gcloud("buckets", "create", "gs://made-by-gcloud", "--location=europe-west1")
    assert service.core.buckets.get("made-by-gcloud").settings["location"] == "EUROPE-WEST1"
    assert "gs://made-by-gcloud/" in gcloud("ls")
    gcloud("rm", "--recursive", "gs://made-by-gcloud")
    with pytest.raises(StorageError):
        service.core.buckets.get("made-by-gcloud")
