"""Which of several meanings a name has, and what is said when it has none."""

import pytest

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.names import AmbiguousName, Column, Range, Scope
from ingestd.googlesql.types import INT64, STRING, array_of, struct_of
from ingestd.googlesql.values import Value
from ingestd.googlesql.wording import GOOGLESQL
from ingestd.model.schema import Field, Mode, Type
from ingestd.spark.sql.expressions import Rows, translate
from ingestd.spark.sql.expressions import Scope as Frames
from ingestd.spark.sql.operators import WORDS

T = Range("t", [Column("a", INT64, "t.a"), Column("t", STRING, "t.t"), Column("_FILE", STRING, "t.f", pseudo=True)])
U = Range("u", [Column("A", INT64, "u.a"), Column("b", INT64, "u.b")])


def _sql(scope: Scope, name: str) -> object:
    found = scope.lookup(name)
    return found.sql if isinstance(found, Value) else found


def test_the_innermost_name_wins_and_within_a_query_the_alias() -> None:
    outer = Scope([T])
    inner = Scope([U], outer).inside({"b": Value("x", INT64)})
    assert _sql(outer, "T") is T
    assert outer.lookup("t", columns_first=True) == T.columns[1].expr
    assert (_sql(inner, "a"), _sql(inner, "B"), _sql(inner, "u")) == ("u.a", "x", U)
    assert _sql(inner, "_file") == "t.f"
    assert _sql(inner, "nothing") is None
    assert sorted(inner.known()) == ["_file", "a", "b", "t"]


def test_two_columns_of_a_name_are_ambiguous_unless_one_is_merged() -> None:
    scope = Scope([T, U])
    with pytest.raises(AmbiguousName):
        scope.lookup("a")
    scope.merged["a"] = Column("a", INT64, "m")
    scope.hidden |= {(id(T), "a"), (id(U), "a")}
    assert _sql(scope, "A") == "m"
    assert [column.sql for column in scope.columns()] == ["m", "t.t", "u.b"]


def test_a_name_that_is_near_is_suggested() -> None:
    assert Scope([Range("orders", [])], Scope([T])).suggestion("order") == "; Did you mean orders?"
    assert Scope([T]).suggestion("zzz") == ""


def test_an_element_s_fields_are_before_the_columns_around_it() -> None:
    items = Field("items", Type.STRUCT, Mode.REPEATED, (Field("x", Type.STRING),))
    scope = Frames({"t": Rows.of((items, Field("x", Type.INT64)))})
    assert translate("ARRAY(SELECT x FROM UNNEST(items) AS e)", scope).type == array_of(STRING)
    assert translate("ARRAY(SELECT t.x FROM UNNEST(items) AS e)", scope).type == array_of(INT64)
    assert translate("ARRAY(SELECT e FROM UNNEST(items) AS e)", scope).type == array_of(struct_of([("x", STRING)]))
    with pytest.raises(SqlError, match="t is an alias: name one of its columns"):
        translate("t", scope)


def test_an_engine_has_words_for_all_that_is_found() -> None:
    general = {
        key for key in GOOGLESQL if not key.startswith(("untyped ", "no common type of ")) and key != "no window"
    }
    assert general <= WORDS.keys()
