"""docs/architecture.md says what is so: the rooms, what each uses, the states of a batch."""

import ast
import re
import tomllib
from pathlib import Path

from tests.support.places import ROOT

from ingestd.batch.phases import Phase, Stage
from ingestd.collect.windows.pending import WindowState

SOURCE = ROOT / "src/ingestd"
PAGE = (ROOT / "docs/architecture.md").read_text()
TOGETHER = {"settings_loader": "settings"}  # two files that are one room to a reader


def room(name: str) -> str:
    return TOGETHER.get(name, name)


def rooms() -> set[str]:
    found = {one.stem for one in SOURCE.iterdir() if one.suffix == ".py" or (one / "__init__.py").exists()}
    return {room(name) for name in found if not name.startswith("__")}


def imported(path: Path) -> set[str]:
    """The rooms whose modules a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("ingestd.")}
    return {room(name) for name in found} & rooms()


def written() -> dict[str, set[str]]:
    table = re.findall(r"^\| `(\w+)` \| .* \| ([^|]*) \|$", PAGE.partition("## Rooms")[2].partition("\n## ")[0], re.M)
    return {name: set(re.findall(r"`(\w+)`", uses)) for name, uses in table}


def test_the_page_names_every_room_and_what_it_uses() -> None:
    used: dict[str, set[str]] = {name: set() for name in rooms()}
    for path in SOURCE.rglob("*.py"):
        name = room(path.relative_to(SOURCE).parts[0].removesuffix(".py"))
        if name in used:
            used[name] |= imported(path) - {name}
    assert written() == used


def test_rooms_use_only_rooms_further_down_the_page() -> None:
    order = [*written()]
    for name, uses in written().items():
        assert all(order.index(one) > order.index(name) for one in uses), name


def test_the_contracts_know_every_room() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [one for one in contracts if one["type"] == "layers" and "ingestd" in one["containers"]]
    named = {room(name) for layer in layers["layers"] for name in layer.split(" | ")}
    assert named - {"__main__"} == rooms()
    assert layers["exhaustive"] and layers["containers"] == ["ingestd"]


def drawn(place: int) -> set[tuple[str, str]]:
    """The steps in a diagram of states, by its place on the page; what leads back to itself is only said."""
    diagram = PAGE.split("stateDiagram-v2")[place].partition("```")[0]
    return {(one, other) for one, other in re.findall(r"^  (\w+) --> (\w+)", diagram, re.M) if one != other}


def steps(states: type[Phase] | type[Stage] | type[WindowState]) -> set[tuple[str, str]]:
    pairs = ((before, after) for before in states for after in states if before is not after)
    return {(str(before), str(after)) for before, after in pairs if before.may_become(after)}  # type: ignore[arg-type]


def test_the_page_draws_every_step_that_a_batch_may_take() -> None:
    assert drawn(1) == steps(Phase)
    diagram = PAGE.partition("stateDiagram-v2")[2].partition("```")[0]
    assert set(re.findall(r"^  (\w+) --> \[\*\]", diagram, re.M)) == {str(one) for one in Phase if one.final}


def test_the_page_draws_the_stages_of_an_accepted_batch_and_the_states_of_a_window() -> None:
    assert drawn(2) == steps(Stage)
    assert drawn(3) == steps(WindowState)
