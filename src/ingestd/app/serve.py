"""`ingestd run`: clients are opened, the daemon is put together, and signals reach it."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from ingestd import __version__
from ingestd.app.assembly import assemble
from ingestd.app.daemon import App
from ingestd.gcp.connect import Clients, connect
from ingestd.model.clock import Clock, SystemClock
from ingestd.ops import collector, tracing
from ingestd.ops.logging import configure
from ingestd.settings import Settings
from ingestd.settings_loader import load_settings, service_links
from ingestd.spark.shape.side_inputs import SideInputs
from ingestd.spark.start import preparer_for, spark_for

log = structlog.get_logger(__name__)


@asynccontextmanager
async def build(
    settings: Settings, *, clients: Clients | None = None, clock: Clock | None = None
) -> AsyncIterator[App]:
    """Put the daemon together; Google's clients are opened here and closed at the end, unless given."""
    clock = clock or SystemClock()
    if clients is None:
        async with connect(settings.project, clock=clock) as opened:
            yield await _with_spark(settings, opened, clock)
    else:
        yield await _with_spark(settings, clients, clock)


async def _with_spark(settings: Settings, clients: Clients, clock: Clock) -> App:
    spark = spark_for(settings.spark)
    sides = None
    if clients.tables is not None:
        most, ttl = settings.spark.side_input_size, settings.spark.side_input_ttl
        sides = SideInputs(clients.warehouse, clients.tables, clock, store=clients.store, most=most, ttl=ttl)
    preparer, statements = preparer_for(settings.spark, spark, clients.store, sides)
    await preparer.start()
    return assemble(settings, clients, clock, preparer, spark, statements)


async def serve(config: Path | None) -> None:
    """`ingestd run`: the daemon with its signals."""
    settings = load_settings(Settings, config, os.environ)
    configure(settings.logging.format, settings.logging.level)
    if ignored := service_links(os.environ):
        log.debug("settings.service_links_ignored", variables=ignored)
    for variable, why in settings.idle_variables.items():
        if os.environ.get(variable) and settings.success.conventions:
            log.warning("settings.variable_without_effect", variable=variable, why=why)
    for variable, why in settings.bqtail_variables.items():
        if os.environ.get(variable):
            log.info("settings.variable_without_effect", variable=variable, why=why)
    if settings.tracing.endpoint:
        tracing.start(
            settings.tracing.endpoint,
            project=settings.project,
            version=__version__,
            replica=settings.replica or socket.gethostname(),
            sample=settings.tracing.sample,
        )
    async with build(settings) as app:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, app.stop)
        loop.add_signal_handler(signal.SIGHUP, app.reload_rules)
        collector.settle()
        await app.run()
    await asyncio.to_thread(tracing.stop)
