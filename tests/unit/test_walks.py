"""docs/walks.md leads through code that is there: every name, every room, and as many hops as it says."""

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.places import ROOT
from tests.support.walks import PAGE, walks

SOURCE = ROOT / "src/ingestd"
WALKS = walks()
[ROOMS] = re.findall(r"^intake → .*$", (ROOT / "docs/architecture.md").read_text(), re.M)
ORDER = ROOMS.split(" → ")
DOTTED = re.compile(r"`((?:" + "|".join(ORDER) + r")(?:\.\w+)+)`")


@cache
def defined(path: Path) -> frozenset[str]:
    """The functions, classes and methods of a module."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, kinds):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, kinds)}
    return frozenset(names)


def exists(name: str) -> bool:
    parts = name.split(".")
    for count in range(2, len(parts)):
        path = SOURCE.joinpath(*parts[:count]).with_suffix(".py")
        if path.is_file():
            return ".".join(parts[count:]) in defined(path)
    return False


def test_every_name_is_in_the_source() -> None:
    names = DOTTED.findall(PAGE)
    assert len(names) > sum(map(len, WALKS.values())) > 100
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("name", ["batch.decide.decided", "batch.decide", "collect.alone.Alone.gone", "batch.no.such"])
def test_a_name_that_is_not_in_the_source_is_noticed(name: str) -> None:
    assert not exists(name)


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_has_as_many_hops_as_its_heading_says(walk: str) -> None:
    told = re.search(r": (\d+) hops$", walk)
    assert told is not None
    assert [hop.number for hop in WALKS[walk]] == list(range(1, int(told[1]) + 1))


@pytest.mark.parametrize("walk", WALKS)
def test_hops_are_in_the_rooms_that_the_page_says(walk: str) -> None:
    hops = WALKS[walk]
    assert [hop.room for hop in hops] == [hop.name.partition(".")[0] for hop in hops]
    assert len({hop.name for hop in hops}) == len(hops), "what is open already is no hop"
    for before, hop in pairwise(hops):
        assert not hop.back or ORDER.index(hop.room) < ORDER.index(before.room), f"{hop.name} is no way back"


def test_the_overview_counts_what_the_walks_have() -> None:
    overview = re.findall(r"^\| (a [^|]+) \| (\d+) \| (\d+) \|$", PAGE, re.M)
    counted = {walk.partition(":")[0]: (len(hops), sum(hop.back for hop in hops)) for walk, hops in WALKS.items()}
    assert {f"A{walk[1:]}": (int(hops), int(back)) for walk, hops, back in overview}.items() <= counted.items()
    assert len(overview) == 3
