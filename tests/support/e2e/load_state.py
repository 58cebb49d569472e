"""What the load-state table of a world says."""

from typing import Any

from google.api_core.exceptions import NotFound
from tests.support.e2e.world import World

TABLE = "bigquery_loads.serverless_bq_loads"
ON: dict[str, Any] = {"load_state": {"enabled": True, "flush_every": "100ms"}}


def rows(world: World, suffix: str = "") -> list[dict[str, Any]]:
    """All rows of the table, or of one of its views."""
    columns = "*" if suffix else "* EXCEPT (recorded_at)"
    try:
        found = world.bigquery.query_and_wait(f"SELECT {columns} FROM `{world.project}.{TABLE}{suffix}`")
    except NotFound:
        return []
    return [dict(row.items()) for row in found]


def latest(world: World) -> list[dict[str, Any]]:
    return sorted(rows(world, "_latest"), key=lambda row: (row["destination"], row["batch_key"]))


def told(world: World, count: int = 1) -> list[dict[str, Any]]:
    """Wait until so many batches are told to have ended, and nothing is left to tell."""
    world.until(lambda: sum(row["final"] for row in latest(world)) >= count and not world.objects("journal/Running/"))
    return latest(world)
