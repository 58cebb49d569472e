"""Nothing that BigQuery says of a column gets lost between two of its answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestd.model.schema import ALIASES, Field, SchemaError, Type, schema_from_rest, schema_rest
from ingestd.rules.load_options import FieldType

NAMES = st.text("abcXYZ_09ä", min_size=1, max_size=8)
TEXT = st.text(min_size=1, max_size=20)
MODES = st.sampled_from(["NULLABLE", "REQUIRED", "REPEATED"])
SAID_OR_NOT = st.one_of(st.none(), MODES)
SAID: dict[str, st.SearchStrategy[Any]] = {
    "description": TEXT,
    "defaultValueExpression": TEXT,
    "collation": st.sampled_from(["und:ci"]),
    "roundingMode": st.sampled_from(["ROUND_HALF_EVEN", "ROUND_HALF_AWAY_FROM_ZERO"]),
    "policyTags": st.fixed_dictionaries({"names": st.lists(TEXT, min_size=1, max_size=2)}),
    "dataPolicies": st.lists(st.fixed_dictionaries({"name": TEXT}), min_size=1, max_size=2),
    "timestampPrecision": st.sampled_from(["6", "12"]),
    "nobodyKnowsThisYet": st.recursive(TEXT, lambda inner: st.dictionaries(TEXT, inner, min_size=1), max_leaves=3),
}
OF_TYPE: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "STRING": {"maxLength": st.integers(1, 100).map(str)},
    "BYTES": {"maxLength": st.integers(1, 100).map(str)},
    "NUMERIC": {"precision": st.integers(1, 29).map(str), "scale": st.integers(0, 9).map(str)},
    "BIGNUMERIC": {"precision": st.integers(1, 38).map(str), "scale": st.integers(0, 38).map(str)},
    "RANGE": {"rangeElementType": st.sampled_from([{"type": one} for one in ("DATE", "DATETIME", "TIMESTAMP")])},
}
SCALARS = [one.rest for one in Type if one is not Type.STRUCT]


@st.composite
def columns(
    draw: st.DrawFn, types: tuple[str, ...], modes: st.SearchStrategy[str | None], depth: int
) -> dict[str, Any]:
    """A `TableFieldSchema` as the API answers it."""
    kind = draw(st.sampled_from([*types, "RECORD"] if depth else [*types]))
    more = OF_TYPE.get(kind, {}) | SAID
    said = draw(st.lists(st.sampled_from([*more]), unique=True, max_size=3))
    column = {"name": draw(NAMES), "type": kind} | {key: draw(more[key]) for key in said}
    column |= {"mode": mode} if (mode := draw(modes)) else {}
    return column | ({"fields": draw(fields(types, modes, depth - 1))} if kind == "RECORD" else {})


def fields(
    types: tuple[str, ...] = tuple(SCALARS), modes: st.SearchStrategy[str | None] = MODES, depth: int = 2
) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(columns(types, modes, depth), min_size=1, max_size=4, unique_by=lambda one: one["name"].lower())


@given(fields())
def test_what_bigquery_says_of_columns_comes_back_as_it_was(drawn: list[dict[str, Any]]) -> None:
    resource = {"fields": drawn}
    assert schema_rest(schema_from_rest(resource)) == resource


@given(fields((*SCALARS, "UUID", "FOREIGN"), SAID_OR_NOT))
def test_what_is_taken_verbatim_keeps_unknown_types_and_unsaid_modes(drawn: list[dict[str, Any]]) -> None:
    resource = {"fields": drawn}
    assert schema_rest(schema_from_rest(resource, verbatim=True)) == resource


@given(fields(tuple({*ALIASES, *Type} - {"RECORD", "STRUCT"}), SAID_OR_NOT))
def test_however_a_type_is_spelt_it_is_the_same_column(drawn: list[dict[str, Any]]) -> None:
    schema = schema_from_rest({"fields": drawn})
    assert schema_from_rest(schema_rest(schema)) == schema
    assert all(item.type in Type.__members__ for item in schema)


@pytest.mark.parametrize(
    ("resource", "why"),
    [
        ({"type": "STRING"}, "name cannot be empty"),
        ({"name": "a", "type": "TEXT"}, r"TEXT is not a valid value \(field a\)"),
        ({"name": "a"}, "is not a valid value"),
        ({"name": "a", "type": "RECORD"}, "has no schema"),
        ({"name": "a", "type": "RANGE", "rangeElementType": {"type": "DAY"}}, "DAY is not a valid value"),
        ({"name": "a", "type": "STRING", "maxLength": "long"}, "Invalid value for maxLength: long"),
        ({"name": "a", "type": "STRING", "mode": "SOMETIMES"}, "Invalid value for mode: SOMETIMES"),
    ],
)
def test_what_is_no_column_is_refused(resource: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        Field.from_rest(resource)


def test_two_columns_of_one_name_are_refused_at_any_depth() -> None:
    twice = [{"name": "a", "type": "STRING"}, {"name": "A", "type": "STRING"}]
    with pytest.raises(SchemaError, match="Duplicate field name: A"):
        schema_from_rest({"fields": [{"name": "r", "type": "RECORD", "fields": twice}]})


def test_a_rule_may_name_every_type_and_no_other() -> None:
    assert {Type.of(one.value) for one in FieldType} == set(Type)
