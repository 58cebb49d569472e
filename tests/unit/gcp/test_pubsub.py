"""A network that is dead is no subscription that is empty."""

import asyncio
from datetime import timedelta

import pytest
from tests.support.listening import deaf, listening

from ingestd.gcp.connect import ClientOptions, connect
from ingestd.model.errors import Transient
from ingestd.retry import RetryPolicy


async def test_a_pull_that_finds_nobody_to_ask_fails() -> None:
    """Connections are taken, and nothing is ever said on them; the other services are not spoken to."""
    options = ClientOptions(retry=RetryPolicy(attempts=1), pull_timeout=timedelta(milliseconds=300))
    async with listening(deaf) as port, asyncio.timeout(60):
        nowhere = f"127.0.0.1:{port}"
        hosts = {f"{service}_EMULATOR_HOST": nowhere for service in ("STORAGE", "BIGQUERY", "PUBSUB")}
        async with connect("p", options=options, environment=hosts) as clients:
            with pytest.raises(Transient, match="there is no connection"):
                await clients.subscription("s").pull(1)
