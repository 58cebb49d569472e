"""From a path to a table: the usual layout, patterns of one's own, overrides, and what is refused."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestd.collect.success.configuration import BadConfig
from ingestd.collect.success.destination import NoDestination, Overrides, infer, table_prefix
from ingestd.collect.success.planning import destination_of
from ingestd.model.objects import ObjectRef
from ingestd.settings import Convention


def inferred(path: str, regex: str = "", root: str = "", **table: str) -> str:
    found = infer(f"{path}/_SUCCESS", root=root, overrides=Overrides(regex, table), project="home")
    return str(found.table)


@pytest.mark.parametrize(
    ("path", "table", "batch"),
    [
        ("ds/t", "home.ds.t", ""),
        ("ds/t/historical", "home.ds.t", ""),
        ("ds/t/incremental/b1", "home.ds.t", "b1"),
        ("ds/t/history", "home.ds.t", "history"),
        ("ds/t/incrementalfoo", "home.ds.t", "incrementalfoo"),
        ("ds/t/$20201030/b1", "home.ds.t$20201030", "b1"),
        ("ds/t$20200101", "home.ds.t$20200101", ""),
        ("ds/t/2020", "home.ds.t$2020", ""),
        ("ds/t/2020/01/02/03/b", "home.ds.t$2020010203", "b"),
        ("ds/t/2020/01/02/b-7", "home.ds.t$20200102", "b-7"),
        ("ds/t/20200102", "home.ds.t$20200102", ""),
        ("ds/t/2020010203/x", "home.ds.t$2020010203", "x"),
        ("ds/t/20200102/13", "home.ds.t$2020010213", ""),
        ("ds/t/202001/02", "home.ds.t$20200102", ""),
        ("ds/t/2020/01/02/03/0405", "home.ds.t$2020010203", "0405"),
        ("ds/t/foo/bar/baz", "home.ds.t", "foo"),
        ("ds/t/dt=2020-01-02", "home.ds.t", ""),
        ("ds/t/a#b?c d/é", "home.ds.t", ""),
        ("ds/2020/01", "home.ds.2020", "01"),
        ("other-project.ds/t", "other-project.ds.t", ""),
    ],
)
def test_the_usual_layout(path: str, table: str, batch: str) -> None:
    found = infer(f"{path}/_SUCCESS", overrides=Overrides(), project="home")
    assert (str(found.table), found.batch) == (table, batch)
    assert found.prefix == "/".join(path.split("/")[:2]).partition("$")[0]
    assert found.steps[-1].endswith(table)


@pytest.mark.parametrize(
    ("path", "because"),
    [
        ("ds/t/2020-01-02", "could be a date or a batch id"),
        ("ds/t/12345", "could be a date or a batch id"),
        ("ds/t/202001020304", "could be a date or a batch id"),
        ("ds/t/2020/1", "could be the mm of the date or a batch id"),
        ("ds/t/2020/01/02/1234", "could be the hh of the date or a batch id"),
        ("ds/t/2020/13", "has the form of a date and is none"),
        ("ds/t/20200230", "has the form of a date and is none"),
        ("ds/t/0001", "has the form of a date and is none"),
        ("ds/t/$20200101abc", "after '$' only digits"),
        ("ds/t$2020/$2021", "named already"),
        ("ds", "names no dataset and table"),
        ("/ds/t", "cannot be a dataset"),
        ("ds/t b", "cannot be a table"),
        ("a.b.c/t", "more parts than project and dataset"),
        ("d-s/t", "is not a dataset id"),
    ],
)
def test_w19_a_path_that_may_mean_two_things_is_refused_with_the_reason(path: str, because: str) -> None:
    with pytest.raises(NoDestination, match="(?s).*".join(map(_literal, [because]))):
        inferred(path)


def _literal(text: str) -> str:
    return "".join(f"\\{char}" if char in "$()?." else char for char in text)


def test_a_pattern_of_ones_own() -> None:
    regex = r"in/(?P<table>\w+)/(?P<dataset>\w+)/(?P<yyyy>\d{4})-(?P<mm>\d+)(?:-(?P<dd>\d+))?(?:T(?P<hr>\d+))?"
    assert inferred("in/t/ds/2020-1", regex) == "home.ds.t$202001"
    assert inferred("in/t/ds/2020-01-02T03", regex) == "home.ds.t$2020010203"
    assert inferred("in/t/p20/x", r"in/(?P<table>\w+)/p(?P<partition>\d+)/", datasetId="d") == "home.d.t$20"
    assert table_prefix("in/t/ds/2020-1/_SUCCESS", regex=regex) == "in/t"


@pytest.mark.parametrize(
    ("regex", "because"),
    [
        (r"(?P<table>\w+)", "neither path nor destinationTable name a dataset"),
        (r"(?P<dataset>\w+)/", "captures no 'table'"),
        (r"(?P<dataset>\w+)/(?P<table>\w+)?-", "does not match"),
        (r"(?P<dataset>\w+)/(?P<table>\w+)/(?P<yyyy>\w+)", "which is no number"),
        (r"(?P<dataset>\w+)/(?P<table>\w+)/(?P<dd>\d*)(?P<name>.*)", "known are batch"),
        (r"(?P<dataset>\w+)/(?P<table>\w)(?P<dd>\d+)", "and no yyyy"),
        (r"(?P<table>", "no RE2 pattern"),
        (r"(?=x)", "no RE2 pattern"),
    ],
)
def test_a_pattern_that_does_not_tell_is_refused_with_the_reason(regex: str, because: str) -> None:
    with pytest.raises(NoDestination, match=because.replace("(", r"\(")):
        inferred("ds/t5/abc", regex)


def test_destination_table_overrides_what_the_path_says_part_by_part() -> None:
    assert inferred("ds/t/$20", tableId="other") == "home.ds.other$20"
    assert inferred("p1.ds/t", tableId="other") == "p1.ds.other"
    assert inferred("p1.ds/t", projectId="p2", datasetId="d2") == "p2.d2.t"
    assert inferred("ds/t", tableId="t$2020") == "home.ds.t$2020"
    with pytest.raises(NoDestination, match="destinationTable says"):
        inferred("ds/t/$2021", tableId="t$2020")


def test_a_root_stands_for_the_bucket() -> None:
    assert inferred("landing/ds/t/$20", root="landing/") == "home.ds.t$20"
    assert table_prefix("landing/ds/t/$20/_SUCCESS", root="landing/") == "landing/ds/t"


@given(st.text(st.sampled_from("ads/$_.-=#?*`'é0129 \n"), max_size=40), st.booleans())
def test_w15_no_path_reaches_anything_but_a_checked_name_or_a_refusal(path: str, other: bool) -> None:
    try:
        found = infer(f"ds/t/{path}/_SUCCESS" if other else f"{path}/_SUCCESS", overrides=Overrides(), project="home")
    except NoDestination:
        return
    assert not set(found.table.sql[1:-1]) & set("`'\n\\;")
    assert f"{path}/_SUCCESS".startswith(found.prefix) or other


def test_w15_a_hostile_pattern_costs_linear_time() -> None:
    started = time.process_time()
    with pytest.raises(NoDestination):
        inferred("a" * 900 + "!", r"(?P<dataset>(a+)+)/(?P<table>(\w+\s?)+)$")
    assert time.process_time() - started < 20  # tried one way after the other, it would never end


def test_w15_overrides_can_be_switched_off_and_destinations_limited() -> None:
    ref = ObjectRef("b", "ds/t/_SUCCESS")
    closed = Convention(bucket="b", destination_overrides=False)
    with pytest.raises(BadConfig, match="switched off"):
        destination_of(ref, closed, Overrides(table={"tableId": "x"}), project="home")
    limited = Convention(bucket="b", allowed_datasets=("ds", "other.loot"))
    assert str(destination_of(ref, limited, Overrides(), project="home").table) == "home.ds.t"
    destination_of(ref, limited, Overrides(table={"projectId": "other", "datasetId": "loot"}), project="home")
    for stolen in ({"datasetId": "secret"}, {"projectId": "other"}):
        with pytest.raises(BadConfig, match="may not go to"):
            destination_of(ref, limited, Overrides(table=stolen), project="home")
