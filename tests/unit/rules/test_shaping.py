"""What a rule asks for becomes one `Shaping`, and a value never becomes SQL."""

import pytest
from tests.support.rules import spec

from ingestd.model.errors import BadInput
from ingestd.model.preparation import Branch, Drift, Shaping, SideInput, Unmatched
from ingestd.model.tables import TableName
from ingestd.rules.shaping import absent_policy, lifted, mentioned, shaping_of, upsert_conditions

VALUES = {"EventID": "77", "App": "x'; DROP TABLE t; --", "DestTable": "ds.t", "Source": {"URL": "gs://b/o"}}


def shaping(dest: str, values: dict[str, object] | None = None) -> Shaping:
    return shaping_of(spec(f"Dest:\n  Table: ds.t\n{dest}").dest, VALUES if values is None else values)


def test_every_part_of_a_rule_is_carried_over() -> None:
    found = shaping("""
  Transient: {Dataset: temp, Alias: x, Criteria: x.id > 0}
  UniqueColumns: [id]
  OrderBy: [ts DESC]
  Transform: {name: UPPER(x.name)}
  SideInputs:
    - {Table: 'p:ds.side', Alias: s, 'On': s.id = x.id, Inner: true}
    - {From: SELECT 1 AS id, Alias: f, 'On': f.id = x.id}
  Schema:
    Split: {Mapping: [{When: 'MOD(id, 2) = 0', Then: ds.even}], Match: all, Unmatched: refuse}
""")
    assert found == Shaping(
        alias="x",
        side_inputs=(
            SideInput("s", "s.id = x.id", table=TableName("p", "ds", "side"), inner=True),
            SideInput("f", "f.id = x.id", select="SELECT 1 AS id"),
        ),
        transform={"name": "UPPER(x.name)"},
        criteria="x.id > 0",
        unique_columns=("id",),
        order_by=("ts DESC",),
        branches=(Branch("MOD(id, 2) = 0"),),
        every_branch=True,
        unmatched=Unmatched.REFUSE,
    )
    assert found.asked
    assert not shaping("").asked


def test_rows_that_no_mapping_takes_are_left_out_and_counted_by_default() -> None:
    assert shaping("  Schema: {Split: {Mapping: {When: a, Then: d.x}}}").unmatched is Unmatched.DROP


def test_values_become_parameters() -> None:
    found = shaping("  Transform: {batch: $EventID, app: $App, again: CONCAT($App), url: $Source.URL, no: $Nope}")
    assert found.transform == {
        "batch": "@EventID",
        "app": "@App",
        "again": "CONCAT(@App)",
        "url": "@Source_URL",
        "no": "$Nope",
    }
    assert found.parameters == {"EventID": 77, "App": VALUES["App"], "Source_URL": "gs://b/o"}


def test_inside_the_authors_strings_and_names_a_value_stays_what_it_is() -> None:
    found = shaping("  Transform: {app: \"'app-$App'\", n: (SELECT COUNT(*) FROM $DestTable)}")
    assert found.transform == {
        "app": r"'app-x\'; DROP TABLE t; --'",
        "n": "(SELECT COUNT(*) FROM `ds.t`)",
    }
    assert found.parameters == {}


def test_parameters_of_one_name_but_other_values_are_told_apart() -> None:
    found = shaping("  Transform: {a: $Source.URL, b: $Source_URL, c: $source_url}", {
        "Source": {"URL": "x"}, "Source_URL": "y", "source_url": "x",
    })  # fmt: skip
    assert found.transform == {"a": "@Source_URL", "b": "@Source_URL_2", "c": "@Source_URL"}
    assert found.parameters == {"Source_URL": "x", "Source_URL_2": "y"}


def test_parameters_keep_their_kind() -> None:
    found = shaping(
        "  Transform: {a: $L, b: $M, c: $N, d: $E, e: $Big}",
        {"L": ["1", "x"], "M": {"k": 1}, "N": None, "E": [], "Big": "9" * 19},
    )
    assert found.parameters == {"L": ["1", "x"], "M": '{"k": 1}', "Big": "9" * 19}
    assert found.transform == {"a": "@L", "b": "@M", "c": "NULL", "d": "[]", "e": "@Big"}


def test_a_side_inputs_table_may_be_named_by_variables_but_not_moved_by_them() -> None:
    one = "  SideInputs: {Table: ds.side_$App, Alias: s, 'On': s.id = t.id}"
    assert shaping(one, {"App": "web"}).side_inputs[0].table == TableName(None, "ds", "side_web")
    with pytest.raises(BadInput, match=r"SideInputs\[0\].Table: \$App is 'x.y'"):
        shaping(one, {"App": "x.y"})


def test_an_upserts_conditions_share_the_parameters() -> None:
    dest = spec("""
Dest:
  Table: ds.t
  Merge: {Keys: id, UpdateWhen: dest.batch <> $EventID, DeleteWhen: t.gone = $App}
""").dest
    parameters: dict[str, object] = {"EventID": 77}
    assert upsert_conditions(dest, VALUES, parameters) == ("dest.batch <> @EventID", "t.gone = @App")
    assert parameters == {"EventID": 77, "App": VALUES["App"]}
    found = shaping_of(dest, VALUES)
    assert found.unique_columns == ("id",)
    assert found.keep_keyless
    assert found.conditions == ("dest.batch <> @EventID", "t.gone = @App")


def test_the_last_name_of_a_nested_cluster_column_stands_for_the_whole() -> None:
    condition = "key = 'key' AND t.key > 1 AND info.key < 2 AND key(`key`) /* key */ OR other.key"
    assert lifted(condition, ["id", "info.key"], "t") == (
        "t.info.key = 'key' AND t.info.key > 1 AND info.key < 2 AND key(`key`) /* key */ OR other.key"
    )
    assert lifted("id = 1", ["id"], "t") == "id = 1"


@pytest.mark.parametrize(
    ("dest", "policy"),
    [
        ("", Drift.FREEZE),
        ("  Transform: {a: b}", Drift.DISCARD_VALUE),
        ("  Transient: {Dataset: x, Template: ds.wide}", Drift.FREEZE),
        ("  Transient: {Dataset: x, Template: ds.wide}\n  Transform: {a: b}", Drift.FREEZE),
        ("  Transient: {Dataset: x, Template: ds.wide}\n  Schema: {Template: ds.narrow}", Drift.DISCARD_VALUE),
        ("  Transient: {Dataset: x, Template: ds.wide}\n  Schema: {Drift: discard_value}", Drift.DISCARD_VALUE),
        ("  Transient: {Dataset: x}", Drift.FREEZE),
        ("  AllowFieldAddition: true\n  Transform: {a: b}", Drift.EVOLVE),
        ("  Schema: {Drift: freeze}\n  Transform: {a: b}", Drift.FREEZE),
    ],
)
def test_columns_a_transient_table_has_besides_are_input_where_the_rule_declares_them(dest: str, policy: Drift) -> None:
    assert absent_policy(spec(f"Dest:\n  Table: ds.t\n{dest}").dest) is policy


def test_columns_that_expressions_use_are_known() -> None:
    found = shaping("  Transform: {a: UPPER(t.first)}\n  UniqueColumns: [Id]\n  OrderBy: [seen DESC]")
    assert mentioned(found, ["first", "last", "ID", "seen"]) == {"first", "ID", "seen"}
