"""Google's clients, built once and closed together.

With `STORAGE_EMULATOR_HOST`, `BIGQUERY_EMULATOR_HOST` or `PUBSUB_EMULATOR_HOST` set, that service is spoken to there
without credentials; the others use application default credentials.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import google.auth
import grpc.aio
import httpx
from google.auth.credentials import AnonymousCredentials, Credentials
from google.cloud import bigquery
from google.cloud.storage import Client as StorageClient
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from ingestd.gcp.bigquery import BigQueryWarehouse
from ingestd.gcp.errors import translated
from ingestd.gcp.http import HttpxClient
from ingestd.gcp.pubsub import PubSubPublisher, PubSubSubscription
from ingestd.gcp.rest import Rest, Tokens, connections
from ingestd.gcp.session import Session
from ingestd.gcp.storage import GcsStore
from ingestd.gcp.tables import BigQueryTables
from ingestd.gcp.threads import Threads
from ingestd.model.clock import Clock, SystemClock
from ingestd.retry import Retrier, RetryPolicy

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Idle connections are cut by middleboxes without a word; the ping notices while a pull waits.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Sizes and time limits of the connections; the defaults suit one daemon on two cores."""

    storage_threads: int = 16
    transfer_threads: int = 16
    bigquery_threads: int = 8
    call_timeout: timedelta = timedelta(seconds=60)
    pull_timeout: timedelta = timedelta(seconds=20)
    location_ttl: timedelta = timedelta(minutes=10)
    retry: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True, slots=True)
class Clients:
    """The outside world, connected."""

    store: GcsStore
    warehouse: BigQueryWarehouse
    publisher: PubSubPublisher
    http: HttpxClient
    subscription: Callable[[str], PubSubSubscription]
    tables: BigQueryTables | None = None


@asynccontextmanager
async def connect(
    project: str,
    *,
    options: ClientOptions | None = None,
    clock: Clock | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Clients]:
    """Clients for `project`; leaving the context waits for running calls and closes every connection."""
    options = options or ClientOptions()
    clock = clock or SystemClock()
    env = os.environ if environment is None else environment
    retrier = Retrier(options.retry, clock)
    seconds = options.call_timeout.total_seconds()
    async with AsyncExitStack() as stack:
        threads = {
            "storage": Threads("storage", options.storage_threads),
            "transfers": Threads("transfers", options.transfer_threads),
            "bigquery": Threads("bigquery", options.bigquery_threads),
            "auth": Threads("auth", 2),
        }
        at_once = options.storage_threads + options.transfer_threads
        storage_client = _storage_client(project, env.get("STORAGE_EMULATOR_HOST", ""), at_once)
        stack.callback(storage_client.close)
        bigquery_client = _bigquery_client(project, env.get("BIGQUERY_EMULATOR_HOST", ""), options.bigquery_threads)
        stack.callback(bigquery_client.close)
        publisher, subscriber = _pubsub_clients(env.get("PUBSUB_EMULATOR_HOST", ""))
        stack.push_async_callback(publisher.transport.close)
        stack.push_async_callback(subscriber.transport.close)
        # Connections are made to addresses. One that is kept would be used for every name that leads to its address,
        # with the certificate of the first.
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=0)
        web = await stack.enter_async_context(httpx.AsyncClient(follow_redirects=False, limits=limits))
        most = sum(pool.size for pool in threads.values())
        calls = await stack.enter_async_context(connections(most, silence=seconds))
        for pool in threads.values():  # last in, first out: threads end before the sessions they use
            stack.push_async_callback(pool.close)
        yield Clients(
            store=GcsStore(
                storage_client,
                Rest(calls, Tokens(storage_client._credentials, threads["auth"])),
                threads["storage"],
                retrier,
                timeout=seconds,
                transfers=threads["transfers"],
            ),
            warehouse=BigQueryWarehouse(
                bigquery_client,
                Rest(calls, Tokens(bigquery_client._credentials, threads["auth"])),
                threads["bigquery"],
                retrier,
                timeout=seconds,
                location_ttl=options.location_ttl,
                clock=clock,
            ),
            publisher=PubSubPublisher(publisher, project, retrier),
            http=HttpxClient(web, threads["auth"], retrier, clock=clock),
            subscription=lambda name: PubSubSubscription(
                subscriber,
                name if name.startswith("projects/") else f"projects/{project}/subscriptions/{name}",
                retrier,
                pull_timeout=options.pull_timeout.total_seconds(),
            ),
            tables=BigQueryTables(bigquery_client, threads["bigquery"], retrier, timeout=seconds),
        )


def _credentials(endpoint: str) -> Credentials:
    if endpoint:
        return AnonymousCredentials()  # type: ignore[no-untyped-call]
    with translated("find", "application default credentials"):
        credentials, _ = google.auth.default(scopes=_SCOPES)
    return credentials


def _storage_client(project: str, endpoint: str, threads: int) -> StorageClient:
    credentials = _credentials(endpoint)
    options = {"api_endpoint": _with_scheme(endpoint)} if endpoint else None
    return StorageClient(
        project=project, credentials=credentials, _http=Session(credentials, threads), client_options=options
    )


def _bigquery_client(project: str, endpoint: str, threads: int) -> bigquery.Client:
    credentials = _credentials(endpoint)
    options = {"api_endpoint": _with_scheme(endpoint)} if endpoint else None
    return bigquery.Client(
        project=project, credentials=credentials, _http=Session(credentials, threads), client_options=options
    )


def _pubsub_clients(endpoint: str) -> tuple[PublisherAsyncClient, SubscriberAsyncClient]:
    if endpoint:
        channel = partial(grpc.aio.insecure_channel, endpoint, options=_GRPC_OPTIONS)
        return (
            PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel())),
            SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel())),
        )
    credentials: Any = _credentials("")
    return PublisherAsyncClient(credentials=credentials), SubscriberAsyncClient(credentials=credentials)


def _with_scheme(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"
