"""A run's own resources: made before the daemon starts, removed whatever happened.

Nothing is remembered but names (see `estate`), so removing is the same after a success, a failure, Ctrl-C, or in
another process days later. Every removal is tried, also when an earlier one failed; what could not be removed is said.

| dies while …           | what is left                     | removed by                                      |
|------------------------|----------------------------------|-------------------------------------------------|
| making them            | some of them                     | the run itself; killed: `--clean RUN`           |
| the daemon runs        | all, and the daemon's objects    | the same; the daemon ends with its parent       |
| removing them          | the rest                         | `--clean RUN`, as often as it takes             |
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import orjson

from ingestd.cli.acceptance.estate import SINK_FILTER, Estate
from ingestd.cli.acceptance.scenarios import Scenario
from ingestd.model.errors import IngestError, NotFound
from ingestd.model.objects import ObjectRef

if TYPE_CHECKING:
    from ingestd.gcp.connect import Clients
    from ingestd.gcp.provisioning import Provisioner

# The local cloud has no log sinks: completions of every job come to this topic by themselves.
_LOCAL_COMPLETIONS = "bigquery-completions"
_GRANT_SECONDS = 90.0
_GRANT_PAUSE = 5.0

Step = Callable[[], object]


async def make(
    estate: Estate,
    cloud: "Provisioner",
    clients: "Clients",
    scenarios: tuple[Scenario, ...],
    tell: Callable[[str], None],
) -> None:
    """Everything the daemon and the scenarios need; rules are written last, the daemon reads them when it starts."""
    for what, step in _steps(estate, cloud, scenarios):
        tell(what)
        await _finished(step)
    for one in scenarios:
        if one.rule is not None:
            ref = ObjectRef.parse(estate.url(f"rules/{one.name}.json"))
            await clients.store.create(ref, orjson.dumps(one.rule(estate)))


async def _finished(step: Step) -> None:
    """Run a step to its end, also when we are to stop: what it makes meanwhile would be left behind."""
    task = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _steps(estate: Estate, cloud: "Provisioner", scenarios: tuple[Scenario, ...]) -> Iterator[tuple[str, Step]]:
    yield f"dataset {estate.dataset}", partial(_dataset, estate, cloud)
    for table, fields in [pair for one in scenarios for pair in one.tables.items()]:
        name = estate.table(table)
        yield f"table {name}", partial(cloud.create_table, estate.dataset, name, fields)
    told, ended = estate.notifications, estate.completions
    yield f"topic {estate.dead_letters}", partial(cloud.create_topic, estate.dead_letters)
    yield f"topic {told}", partial(cloud.create_topic, told)
    yield f"subscription {told}", partial(cloud.create_subscription, told, told)
    yield "publishing for Cloud Storage's service agent", lambda: cloud.let_publish(told, cloud.storage_agent())
    watched = f"gs://{estate.bucket}/{estate.arrivals}"
    yield f"notification of {watched}", partial(_notify, estate, cloud)
    if cloud.local:
        yield f"subscription {ended}", partial(cloud.create_subscription, ended, _LOCAL_COMPLETIONS)
        return
    yield f"topic {ended}", partial(cloud.create_topic, ended)
    yield f"subscription {ended}", partial(cloud.create_subscription, ended, ended)
    yield f"log sink {ended}", lambda: cloud.let_publish(ended, cloud.create_sink(ended, ended, SINK_FILTER))


def _notify(estate: Estate, cloud: "Provisioner") -> None:
    """Cloud Storage checks first whether it may publish, and a right that was just granted takes a while to count."""
    end = time.monotonic() + _GRANT_SECONDS
    while True:
        try:
            return cloud.notify(estate.bucket, estate.notifications, estate.arrivals)
        except IngestError:
            if time.monotonic() > end:
                raise
            time.sleep(_GRANT_PAUSE)


def _dataset(estate: Estate, cloud: "Provisioner") -> None:
    """One that is there already carries no label of ours, and stays."""
    if cloud.dataset_location("", estate.dataset) is None:
        cloud.create_dataset(estate.dataset, estate.location, estate.labels)


async def remove(estate: Estate, cloud: "Provisioner") -> list[str]:
    """Everything that carries the run's name; what could not be removed, in words."""
    failures = []
    for what, step in _removals(estate, cloud):
        try:
            await asyncio.to_thread(step)
        except NotFound:
            continue
        except IngestError as error:
            failures.append(f"{what}: {error}")
    return failures


def _removals(estate: Estate, cloud: "Provisioner") -> Iterator[tuple[str, Step]]:
    yield "notification", lambda: cloud.delete_notifications(estate.bucket, estate.notifications)
    if not cloud.local:
        yield f"log sink {estate.completions}", lambda: cloud.delete_sink(estate.completions)
    for name in (estate.notifications, estate.completions):
        yield f"subscription {name}", partial(cloud.delete_subscription, name)
    for name in (estate.notifications, estate.completions, estate.dead_letters):
        yield f"topic {name}", partial(cloud.delete_topic, name)
    yield f"objects below {estate.folder}", lambda: cloud.delete_objects(estate.bucket, estate.folder)
    yield f"tables {estate.tables}*", lambda: _delete_tables(estate, cloud)
    yield f"dataset {estate.dataset}", lambda: cloud.delete_dataset(estate.dataset, estate.labels)


def _delete_tables(estate: Estate, cloud: "Provisioner") -> None:
    for table in cloud.tables(estate.dataset, estate.tables):
        cloud.delete_table(estate.dataset, table)
