"""`ingestd cloud`: the local cloud alone, in the foreground."""

import asyncio
import contextlib
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingestd.cli.errors import CommandError
from ingestd.cli.extras import missing, need
from ingestd.cli.terminal import duration, output

if TYPE_CHECKING:
    from ingestd.localcloud.cloud import LocalCloud
    from ingestd.localcloud.provision import Names
    from ingestd.localcloud.statefolder import Endpoints

DEFAULT_PROJECT = "local-dev"  # as long as Google's clients want a project id to be

StateFolder = Annotated[
    Path,
    typer.Option("--state", metavar="DIR", file_okay=False, help="Folder that holds objects, messages and tables."),
]
Project = Annotated[str, typer.Option("--project", metavar="ID", help="The Google Cloud project to play.")]
_Port = typer.Option(metavar="N", min=0, max=65535, help="0: the port of the last run when it is free, else any.")
_PR_SET_PDEATHSIG = 1
_WHAT = "the local cloud"


def need_local_cloud() -> None:
    need("local", _WHAT)


def cloud(
    state: StateFolder,
    project: Project = DEFAULT_PROJECT,
    storage_port: Annotated[int, _Port] = 0,
    pubsub_port: Annotated[int, _Port] = 0,
    bigquery_port: Annotated[int, _Port] = 0,
    provision: Annotated[
        bool, typer.Option("--provision", help="Create the buckets, topics and subscriptions the daemon uses.")
    ] = False,
    audit_topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="Topic that receives BigQuery's job completions, once it exists.")
    ] = "bigquery-completions",
    legacy_audit: Annotated[
        bool, typer.Option("--legacy-audit", help="Send completions in the legacy AuditData shape as well.")
    ] = False,
    job_latency: Annotated[
        timedelta,
        typer.Option(
            parser=duration, metavar="DURATION", show_default="none", help="How long every BigQuery job takes at least."
        ),
    ] = timedelta(),
    enforce_quotas: Annotated[
        bool, typer.Option("--enforce-quotas", help="Refuse what BigQuery's quotas and Storage's write rate refuse.")
    ] = False,
    notifications_subscription: Annotated[str, typer.Option(hidden=True)] = "ingestd-notifications",
    completions_subscription: Annotated[str, typer.Option(hidden=True)] = "ingestd-completions",
    bucket: Annotated[list[str] | None, typer.Option(hidden=True, help="A further bucket to create.")] = None,
    notified_bucket: Annotated[
        list[str] | None, typer.Option(hidden=True, help="A further bucket to create, which notifies the daemon.")
    ] = None,
    parent: Annotated[int, typer.Option(hidden=True, help="Process id whose end ends this one.")] = 0,
) -> None:
    """Serve Cloud Storage, Pub/Sub and BigQuery on loopback until stopped.

    Google's clients and command lines work unchanged: [cyan]source DIR/env.sh[/] points them here.
    """
    need_local_cloud()
    try:
        from ingestd.localcloud.cloud import CloudSettings, LocalCloud
        from ingestd.localcloud.provision import Names
    except ModuleNotFoundError as error:
        raise missing("local", _WHAT, str(error.name)) from error
    from ingestd.localcloud.statefolder import Ports
    from ingestd.ops.logging import configure

    configure(level="warning")
    if parent:
        die_with(parent)
    settings = CloudSettings(
        job_latency=job_latency,
        enforce_quotas=enforce_quotas,
        legacy_audit=legacy_audit,
        audit_topic=audit_topic,
    )
    ports = Ports(storage=storage_port, pubsub=pubsub_port, bigquery=bigquery_port)
    names = Names(
        project,
        completions_topic=audit_topic,
        notifications_subscription=notifications_subscription,
        completions_subscription=completions_subscription,
        further_buckets=tuple(bucket or ()),
        landing_buckets=tuple(notified_bucket or ()),
    )
    cloud = LocalCloud(state, project, ports=ports, settings=settings)
    asyncio.run(_serve(cloud, names if provision else None, announce_json=parent != 0))


async def _serve(cloud: "LocalCloud", names: "Names | None", announce_json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with cloud:
        if names is not None:
            cloud.provision(names)
        if announce_json:
            import orjson

            sys.stdout.write(orjson.dumps(cloud.endpoints.environ()).decode() + "\n")
            sys.stdout.flush()
        else:
            _announce(cloud.endpoints, cloud.state)
        await stop.wait()


def _announce(endpoints: "Endpoints", state: Path) -> None:
    output.print(f"[bold]Local cloud[/] for project [cyan]{endpoints.project}[/]")
    for label, address in (
        ("Storage", endpoints.storage),
        ("Pub/Sub", endpoints.pubsub),
        ("BigQuery", endpoints.bigquery),
    ):
        output.print(f"  {label:9} [cyan]{address}[/]")
    output.print(f"Point Google's clients and command lines here: [cyan]source {state / 'env.sh'}[/]")
    output.print("[dim]Ctrl-C stops it; the next start continues where it was.[/]")
    with contextlib.suppress(AttributeError):
        sys.stdout.flush()


def die_with(parent: int) -> None:
    """End this process when its parent ends, however it ends: an orphan would keep the state folder locked."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise CommandError(f"cannot tie this process to its parent: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it ended before we asked
        raise CommandError("the process that started this cloud is gone")
