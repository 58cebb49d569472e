"""Files that are called what nobody expected, and what others have to do with it: nothing."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.support.rule_documents import ROWS, alone, together
from tests.support.sim.names import OPS, TRIGGER
from tests.support.sim.stories import LOADED, Simulate
from tests.support.sim.world import World


@pytest.mark.parametrize("rule", [alone, together], ids=["alone", "window"])
def test_a_file_whose_name_bigquery_reads_as_another_is_refused_and_stays(
    simulate: Simulate, rule: Callable[..., dict[str, Any]]
) -> None:
    """BigQuery makes one slash of several: it would load the first file twice, and the second would be deleted."""

    async def story(world: World) -> None:
        world.prepared({**rule(False), "When": {"Prefix": "/data/"}})
        with world.daemon():
            world.upload("data/a.json", *ROWS)
            world.upload("data//a.json", {"id": 3, "name": "c"})
            world.upload("/data/a.json", {"id": 4, "name": "d"})
            await world.settled()
        assert world.rows() == LOADED
        assert [one["Status"] for one in world.record()] == ["done"]
        assert not world.exists("data/a.json")
        refusals = [orjson.loads(world.storage.read(OPS, one)) for one in world.objects("errors/unrouted/")]
        assert sorted(one["Source"] for one in refusals) == [
            f"gs://{TRIGGER}//data/a.json",
            f"gs://{TRIGGER}/data//a.json",
        ]
        assert all("slashes in a row" in one["Reason"] for one in refusals)
        assert world.exists("data//a.json")
        assert world.exists("/data/a.json")

    simulate(story)
