"""All ways that rows get into tables, as rules of a simulation."""

from typing import Any

from tests.support.rule_documents import together
from tests.support.sim.names import DATASET
from tests.support.sim.world import World

TEMP = {"Transient": {"Dataset": "temp"}}

UNIQUE = {"UniqueColumns": ["id"]}

SPLIT = {
    "Schema": {
        "Split": {
            "Mapping": [
                {"When": "MOD(id, 3) = 0", "Then": f"{DATASET}.third"},
                {"When": "MOD(id, 2) = 0", "Then": f"{DATASET}.even"},
            ],
            "Match": "first",
            "Unmatched": "keep",
        }
    }
}

ON_BIGQUERY = {"Engine": "bigquery"}

# How rows get into tables: what the rule says of its destination, and who does it.
WAYS: dict[str, dict[str, Any]] = {
    "transient copy": {"Dest": TEMP},
    "transient query": {"Dest": {"Transient": {"Dataset": "temp", "CopyMethod": "QUERY"}}},
    "transient DML": {"Dest": {"Transient": {"Dataset": "temp", "CopyMethod": "DML"}}},
    "statements": {"Dest": UNIQUE, **ON_BIGQUERY},
    "statements, transient": {"Dest": {**UNIQUE, **TEMP}, **ON_BIGQUERY},
    "statements, split": {"Dest": {**SPLIT, **TEMP}, **ON_BIGQUERY},
    "statements, upsert": {"Dest": {"Merge": {"Keys": ["id"]}}, **ON_BIGQUERY},
    "prepared": {"Dest": UNIQUE},
    "prepared, transient": {"Dest": {**UNIQUE, **TEMP}},
    "prepared, split": {"Dest": SPLIT},
    "prepared, split, transient": {"Dest": {**SPLIT, **TEMP}},
    "prepared, upsert": {"Dest": {"Merge": {"Keys": ["id"]}}},
    "prepared, override": {"Dest": {**UNIQUE, "Override": True}},
}


def prepare(world: World, way: str, asynchronous: bool, **more: Any) -> None:
    world.create_table("dummy")
    if "split" in way:
        world.create_table("third")
    world.rule("rule.json", together(asynchronous, **WAYS[way] | more))


def everything(world: World) -> list[tuple[Any, ...]]:
    """The rows of all tables, of whichever dataset, together; none of them may be there twice."""
    if world.plain:
        found = [number for table in world.plain.tables.values() for number in table.rows.elements()]
        return sorted((str(number), "x") for number in found)
    return sorted(row for table in world.tables() for row in world.rows(table))
