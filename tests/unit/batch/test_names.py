"""What a listing tells of the names in a record: no name is missed, few others are taken for one."""

import pytest

from ingestd.batch.names import MOST, may_have, name_filter
from ingestd.model.objects import ObjectRef


def refs(count: int, folder: str = "in") -> list[ObjectRef]:
    return [ObjectRef("data", f"{folder}/ä-{number}.json") for number in range(count)]


@pytest.mark.parametrize(("count", "mistaken"), [(2, 0.02), (40, 0.02), (1_000, 0.02), (2_500, 0.06), (MOST, 0.35)])
def test_every_name_is_found_and_few_others_are(count: int, mistaken: float) -> None:
    names = name_filter(refs(count))
    assert all(may_have(names, ref) for ref in refs(count))
    others = refs(2_000, "other")
    assert sum(may_have(names, ref) for ref in others) <= mistaken * len(others)
    assert len(names) <= 3_000, "metadata of an object takes 8 KiB at most"


@pytest.mark.parametrize("junk", ["", "!", "äö", "AAA"])
def test_a_filter_that_cannot_be_read_excludes_nothing(junk: str) -> None:
    assert may_have(junk, ObjectRef("data", "in/a.json"))
