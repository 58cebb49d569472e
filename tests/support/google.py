"""Google's own clients, without credentials, for services on loopback, and the project of the shared cloud."""

from pathlib import Path
from typing import Any

PROJECT = "test-project"


def storage_client(endpoint: str, project: str = PROJECT) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    return storage.Client(project, credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint})


def bigquery_client(endpoint: str, project: str = PROJECT) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery

    return bigquery.Client(project, credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint})


def gcloud_environment(config: Path) -> dict[str, str]:
    """For gcloud with a configuration of its own, which asks nobody anything."""
    return {
        "CLOUDSDK_CONFIG": str(config),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
    }
