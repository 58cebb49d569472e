"""Names from outside fit into the names of our own objects, and ordinary ones are written as they always were."""

from urllib.parse import quote

import pytest

from ingestd.model.segments import LONGEST, cut, segment


@pytest.mark.parametrize(
    "name", ["ds.t", "p:ds.t$20240101", "my-project.ds.Tabelle für Öl", "ds." + "表" * 90, "t" * 850]
)
def test_names_of_ordinary_length_stay_what_they_are_in_every_version(name: str) -> None:
    assert segment(name) == quote(name, safe=".:$-_")
    assert cut(name) == name


@pytest.mark.parametrize("letter", ["t", "ö", "表", "𠜎"])
def test_long_names_fit_and_are_told_apart(letter: str) -> None:
    name = f"ds.{letter * (1024 // len(letter.encode()))}"
    others = [name[:-1], name + "x", name]
    for shortened in (segment, cut):
        assert all(len(shortened(one).encode()) <= LONGEST for one in others)
        assert len({shortened(one) for one in others}) == len(others)


def test_partitions_of_a_long_name_are_found_beside_it() -> None:
    """Batches under way to a table are listed by its segment, followed by `/` or `$`."""
    name = "ds." + "表" * 300
    assert segment(f"{name}$20240101") == f"{segment(name)}$20240101"
