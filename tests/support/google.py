"""Google's own clients, without credentials, for services on loopback, and the project of the shared cloud."""

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
