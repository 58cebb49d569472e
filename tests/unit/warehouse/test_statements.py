"""Publishing a landed table: the SQL as it is sent, and what it does on the local BigQuery."""

from typing import Any

import pytest
from tests.support.tables import JobFailed, Tables, columns, publish_statements

from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobKind
from ingestd.model.preparation import Branch, Drift, Shaping, SideInput, Unmatched
from ingestd.model.schema import schema_rest
from ingestd.model.tables import TableName, parse_table
from ingestd.rules.schema import CopyMethod, Upsert, UpsertMode
from ingestd.warehouse.statements import Publication, TableShape, UpsertPlan, rest_parameter, unmatched_statement

LANDED = TableShape(TableName("p", "temp", "t_77"), columns("id INTEGER, type_id INTEGER, name STRING"))
TARGET = TableShape(TableName("p", "d", "t"), columns("id INTEGER, type_id INTEGER, name STRING"))


def sql(plan: Publication) -> str:
    (statement,) = publish_statements(plan)
    return statement.sql


def test_equal_tables_are_copied() -> None:
    (statement,) = publish_statements(Publication(LANDED, TARGET))
    assert statement.kind is JobKind.COPY
    assert statement.configuration == {
        "sourceTables": [{"projectId": "p", "datasetId": "temp", "tableId": "t_77"}],
        "destinationTable": {"projectId": "p", "datasetId": "d", "tableId": "t"},
        "writeDisposition": "WRITE_APPEND",
        "createDisposition": "CREATE_IF_NEEDED",
    }


def test_a_plain_query_lists_the_columns() -> None:
    (statement,) = publish_statements(Publication(LANDED, TARGET, method=CopyMethod.QUERY))
    assert dict(statement.configuration) == {
        "query": (
            "SELECT\n  t.`id` AS `id`,\n  t.`type_id` AS `type_id`,\n  t.`name` AS `name`\nFROM `p.temp.t_77` AS t"
        ),
        "useLegacySql": False,
        "destinationTable": {"projectId": "p", "datasetId": "d", "tableId": "t"},
        "writeDisposition": "WRITE_APPEND",
        "createDisposition": "CREATE_IF_NEEDED",
    }
    assert not statement.dml


def test_joins_transforms_criteria_and_parameters_stand_in_one_select() -> None:
    shaping = Shaping(
        alias="x",
        side_inputs=(
            SideInput("s", "s.id = x.type_id", table=parse_table("`p:d.side`")),
            SideInput("f", "f.id = x.id", select="SELECT 1 AS id -- one", inner=True),
        ),
        transform={"name": "UPPER(x.name)", "Type_ID": "x.type_id + @Step"},
        criteria="x.id > 0",
        parameters={"Step": 10, "Unused": "x"},
    )
    (statement,) = publish_statements(Publication(LANDED, TARGET, shaping))
    assert (
        statement.sql
        == """\
SELECT
  x.`id` AS `id`,
  (x.type_id + @Step) AS `type_id`,
  CAST((UPPER(x.name)) AS STRING) AS `name`
FROM `p.temp.t_77` AS x
LEFT JOIN `p.d.side` AS `s` ON (s.id = x.type_id)
JOIN (
  SELECT 1 AS id -- one

) AS `f` ON (f.id = x.id)
WHERE (x.id > 0)"""
    )
    assert statement.configuration["queryParameters"] == [
        {"name": "Step", "parameterType": {"type": "INT64"}, "parameterValue": {"value": "10"}}
    ]


def test_one_whole_row_per_key_is_chosen_by_a_total_order() -> None:
    shaping = Shaping(unique_columns=("id",), order_by=("type_id DESC",), transform={"name": "UPPER(t.name)"})
    assert (
        sql(Publication(LANDED, TARGET, shaping))
        == """\
SELECT
  t.`id` AS `id`,
  t.`type_id` AS `type_id`,
  CAST(t.`name` AS STRING) AS `name`
FROM (
  SELECT *
  FROM (
    SELECT
      t.`id` AS `id`,
      t.`type_id` AS `type_id`,
      (UPPER(t.name)) AS `name`
    FROM `p.temp.t_77` AS t
  ) AS t
  WHERE TRUE
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY t.`id`
    ORDER BY type_id DESC, t.`type_id` DESC, TO_JSON_STRING(t.`name`) DESC
  ) = 1
) AS t"""
    )


def test_a_split_gives_each_row_to_its_first_branch_and_tells_of_the_rest() -> None:
    shaping = Shaping(branches=(Branch("MOD(id, 2) = 0"), Branch("id > 5")), unmatched=Unmatched.DROP)
    tables = tuple(TableShape(TableName("p", "d", name)) for name in ("even", "big"))
    plan = Publication(LANDED, TARGET, shaping, tables)
    even, big = publish_statements(plan)
    assert (even.branch, big.branch) == (0, 1)
    assert even.sql.endswith(") AS t\nWHERE (MOD(id, 2) = 0) IS TRUE")
    assert big.sql.endswith(") AS t\nWHERE (id > 5) IS TRUE AND (MOD(id, 2) = 0) IS NOT TRUE")
    count = unmatched_statement(plan)
    assert count is not None
    assert count.target is None
    assert count.sql.startswith("SELECT COUNT(*) AS unmatched\nFROM (")
    assert count.sql.endswith("WHERE (MOD(id, 2) = 0) IS NOT TRUE AND (id > 5) IS NOT TRUE")


def test_an_upsert_is_one_merge() -> None:
    upsert = UpsertPlan(Upsert(keys=("id",)), update_when="t.type_id > dest.type_id", delete_when="t.name = @Gone")
    shaping = Shaping(unique_columns=("id",), parameters={"Gone": "x"})
    (statement,) = publish_statements(Publication(LANDED, TARGET, shaping, upsert=upsert))
    lines = statement.sql.split("\n")
    assert statement.dml
    assert lines[:2] == ["MERGE INTO `p.d.t` AS dest", "USING ("]
    assert lines[-5:] == [
        ") AS t",
        "ON dest.`id` = t.`id`",
        "WHEN MATCHED AND (t.name = @Gone) THEN DELETE",
        "WHEN MATCHED AND (t.type_id > dest.type_id) THEN UPDATE SET `type_id` = t.`type_id`, `name` = t.`name`",
        (
            "WHEN NOT MATCHED AND (t.name = @Gone) IS NOT TRUE"
            " THEN INSERT (`id`, `type_id`, `name`) VALUES (t.`id`, t.`type_id`, t.`name`)"
        ),
    ]
    assert [one["name"] for one in statement.configuration["queryParameters"]] == ["Gone"]


@pytest.mark.parametrize(
    ("plan", "way"),
    [
        ({"append": False, "method": CopyMethod.QUERY}, "WRITE_TRUNCATE_DATA d.t"),
        ({"append": False, "method": CopyMethod.DML}, "WRITE_TRUNCATE_DATA d.t"),
        ({"append": False, "target": "d.t$20240131"}, "WRITE_TRUNCATE d.t$20240131"),
        ({"target": "d.t$20240131", "method": CopyMethod.DML}, "WRITE_APPEND d.t$20240131"),
        ({"append": False}, "copy WRITE_TRUNCATE"),
        ({"method": CopyMethod.DML}, "INSERT"),
        ({"method": CopyMethod.COPY, "shaping": Shaping(criteria="id > 1")}, "WRITE_APPEND d.t"),
        ({"schema": "id INTEGER!, type_id INTEGER, name STRING", "method": CopyMethod.QUERY}, "INSERT"),
        ({"schema": "id INTEGER!, name STRING", "append": False}, "MERGE"),
        ({"schema": "id INTEGER, name STRING, more STRING"}, "WRITE_APPEND d.t"),
        ({"schema": ""}, "copy WRITE_APPEND"),
        ({"layout": {"timePartitioning": {"type": "DAY"}}}, "WRITE_APPEND d.t"),
    ],
    ids=str,
)
def test_the_way_into_the_table_is_the_one_that_can_do_it(plan: dict[str, Any], way: str) -> None:
    name = parse_table(plan.pop("target", "d.t"))
    fields = columns(plan.pop("schema", "id INTEGER, type_id INTEGER, name STRING"))
    target = TableShape(name, fields, plan.pop("layout", {}))
    (statement,) = publish_statements(Publication(LANDED, target, absent=Drift.DISCARD_VALUE, **plan))
    configuration = statement.configuration
    if statement.kind is JobKind.COPY:
        assert way == f"copy {configuration['writeDisposition']}"
    elif statement.dml:
        assert statement.sql.startswith(f"{way} INTO `d.t` ")
    else:
        table = configuration["destinationTable"]
        assert way == f"{configuration['writeDisposition']} {table['datasetId']}.{table['tableId']}"


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"schema": "id INTEGER"}, "has no column name, type_id, and the rule's Drift is freeze"),
        ({"shaping": Shaping(transform={"more": "1"})}, "Transform: p.d.t has no column more"),
        ({"shaping": Shaping(unique_columns=("nope",))}, "UniqueColumns: there is no column 'nope'"),
        ({"schema": "id INTEGER, type_id DATE, name STRING"}, "column type_id is INTEGER in the data and DATE in the"),
        ({"schema": "id INTEGER, type_id INTEGER, name STRING*"}, "is STRING in the data and repeated STRING in"),
        ({"schema": "x INTEGER", "absent": Drift.DISCARD_VALUE}, "the batch has no column of p.d.t"),
        ({"upsert": UpsertPlan(Upsert(keys=("nope",)))}, "Merge.Keys: there is no column 'nope'"),
        ({"upsert": UpsertPlan(Upsert(keys=("id",), update=("no",)))}, "Merge.Update: there is no column 'no'"),
        ({"upsert": UpsertPlan(Upsert(keys=("id",))), "schema": ""}, "Merge needs its table: p.d.t does not exist"),
        (
            {"upsert": UpsertPlan(Upsert(keys=("id", "type_id", "name"), mode=UpsertMode.UPDATE))},
            "Merge has nothing to do",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_work_is_refused_by_name(plan: dict[str, Any], problem: str) -> None:
    target = TableShape(TARGET.name, columns(plan.pop("schema", "id INTEGER, type_id INTEGER, name STRING")))
    with pytest.raises(BadInput, match=problem):
        publish_statements(Publication(LANDED, target, **plan))


def test_a_string_that_spans_lines_stays_as_it_is(tables: Tables) -> None:
    landed, target = tables.make("temp.t", SCHEMA, ROWS[:1]), tables.make("d.t", SCHEMA)
    side = SideInput("s", "TRUE", select="SELECT '''a\n  b''' AS text")
    tables.publish(Publication(landed, target, Shaping(side_inputs=(side,), transform={"name": "s.text"})))
    assert tables.rows("d.t")[0]["name"] == "a\n  b"


def test_parameters_keep_their_types() -> None:
    assert rest_parameter("a", True)["parameterValue"] == {"value": "true"}
    assert rest_parameter("a", 1.5)["parameterType"] == {"type": "FLOAT64"}
    assert rest_parameter("a", ["x", "y"]) == {
        "name": "a",
        "parameterType": {"type": "ARRAY", "arrayType": {"type": "STRING"}},
        "parameterValue": {"arrayValues": [{"value": "x"}, {"value": "y"}]},
    }


ROWS = [
    {"id": 1, "type_id": 1, "name": "a"},
    {"id": 1, "type_id": 2, "name": "b"},
    {"id": 2, "type_id": 1, "name": None},
    {"id": None, "type_id": 3, "name": "c"},
    {"id": None, "type_id": 3, "name": "d"},
]
SCHEMA = "id INTEGER, type_id INTEGER, name STRING"


def test_every_way_adds_the_rows(tables: Tables) -> None:
    landed = tables.make("temp.t", SCHEMA, ROWS)
    for number, method in enumerate([CopyMethod.COPY, CopyMethod.QUERY, CopyMethod.DML]):
        target = tables.make(f"d.t{number}", SCHEMA, ROWS[:1])
        tables.publish(Publication(landed, target, method=method))
        assert len(tables.rows(f"d.t{number}")) == 6


def test_replacing_rows_keeps_the_table_as_it_is(tables: Tables) -> None:
    landed = tables.make("temp.t", "id INTEGER, name STRING", [{"id": 1, "name": "a"}])
    target = tables.make("d.t", "id INTEGER!, name STRING, more {x STRING}, tags STRING*", [{"id": 7}])
    tables.publish(Publication(landed, target, append=False))
    assert tables.rows("d.t") == [{"id": 1, "name": "a", "more": None, "tags": []}]
    assert tables.shape("d.t").fields == target.fields


def test_replacing_a_partition_replaces_nothing_else(tables: Tables) -> None:
    rows = [{"id": 1, "day": "2024-01-31"}, {"id": 2, "day": "2024-02-01"}]
    by_day = {"timePartitioning": {"type": "DAY", "field": "day"}}
    tables.make("d.t", "id INTEGER, day DATE", rows, **by_day)
    landed = tables.make("temp.t", "id INTEGER, day DATE", [{"id": 3, "day": "2024-01-31"}])
    target = TableShape.of(parse_table("p.d.t$20240131"), {"schema": schema_rest(tables.shape("d.t").fields), **by_day})
    tables.publish(Publication(landed, target, append=False))
    assert tables.rows("d.t") == [{"id": 2, "day": "2024-02-01"}, {"id": 3, "day": "2024-01-31"}]


def test_joined_and_transformed_rows_arrive_with_the_destinations_types(tables: Tables) -> None:
    landed = tables.make("temp.t", SCHEMA, ROWS)
    tables.make("d.side", "id INTEGER, label STRING", [{"id": 1, "label": "one"}, {"id": 2, "label": "two"}])
    target = tables.make("d.t", "name STRING, id INTEGER, label STRING, amount NUMERIC, batch STRING")
    shaping = Shaping(
        side_inputs=(SideInput("s", "s.id = t.type_id", table=parse_table("d.side")),),
        transform={"label": "s.label", "amount": "t.type_id * 2", "batch": "@EventID", "name": "IFNULL(t.name, '?')"},
        criteria="t.id IS NOT NULL",
        parameters={"EventID": 77},
    )
    tables.publish(Publication(landed, target, shaping, absent=Drift.DISCARD_VALUE))
    assert tables.rows("d.t") == [
        {"name": "?", "id": 2, "label": "one", "amount": 2, "batch": "77"},
        {"name": "a", "id": 1, "label": "one", "amount": 2, "batch": "77"},
        {"name": "b", "id": 1, "label": "two", "amount": 4, "batch": "77"},
    ]


def test_an_inner_join_keeps_rows_with_a_partner_only(tables: Tables) -> None:
    landed, target = tables.make("temp.t", SCHEMA, ROWS), tables.make("d.t", SCHEMA)
    side = SideInput("s", "s.id = t.id", select="SELECT 2 AS id", inner=True)
    tables.publish(Publication(landed, target, Shaping(side_inputs=(side,))))
    assert tables.rows("d.t") == [{"id": 2, "type_id": 1, "name": None}]


def test_duplicates_leave_one_whole_row(tables: Tables) -> None:
    landed, target = tables.make("temp.t", SCHEMA, ROWS), tables.make("d.t", SCHEMA)
    tables.publish(Publication(landed, target, Shaping(unique_columns=("ID",), order_by=("type_id",))))
    assert tables.rows("d.t", "id") == [
        {"id": None, "type_id": 3, "name": "d"},
        {"id": 1, "type_id": 1, "name": "a"},
        {"id": 2, "type_id": 1, "name": None},
    ]


def test_duplicates_of_nested_rows_leave_one_whole_row_too(tables: Tables) -> None:
    schema = "key {a STRING, b INTEGER}, refs {n INTEGER}*, price FLOAT, seen TIMESTAMP"
    rows = [
        {"key": {"a": "x", "b": 1}, "refs": [{"n": 1}], "price": 1.5, "seen": "2024-01-01T00:00:00Z"},
        {"key": {"a": "x", "b": 1}, "refs": [{"n": 2}, {"n": 3}], "price": 1.5, "seen": "2024-01-02T00:00:00Z"},
        {"key": {"a": "x", "b": 2}, "refs": [], "price": 2.5, "seen": "2024-01-01T00:00:00Z"},
    ]
    landed = tables.make("temp.t", schema, rows)
    for name, keys in {
        "a": ("key.a", "key.b"),
        "b": ("price",),
        "c": ("key",),
        "d": ("LOWER(t.key.a)", "price"),
    }.items():
        target = tables.make(f"d.{name}", schema)
        tables.publish(Publication(landed, target, Shaping(unique_columns=keys, order_by=("seen DESC",))))
        assert [len(row["refs"]) for row in tables.rows(f"d.{name}", "t.key.b")] == [2, 0]


def test_a_transformed_key_is_the_key(tables: Tables) -> None:
    rows = [{"id": 1, "type_id": 1, "name": "a"}, {"id": 2, "type_id": 2, "name": "A"}]
    landed, target = tables.make("temp.t", SCHEMA, rows), tables.make("d.t", SCHEMA)
    shaping = Shaping(transform={"name": "UPPER(t.name)"}, unique_columns=("name",), order_by=("id DESC",))
    tables.publish(Publication(landed, target, shaping))
    assert tables.rows("d.t") == [{"id": 2, "type_id": 2, "name": "A"}]


@pytest.mark.parametrize(
    ("every", "unmatched", "found"),
    [
        (False, Unmatched.DROP, {"one": [1, 1], "two": [2], "t": [], "unmatched": 2}),
        (True, Unmatched.DROP, {"one": [1, 1], "two": [1, 2], "t": [], "unmatched": 2}),
        (False, Unmatched.KEEP, {"one": [1, 1], "two": [2], "t": [None, None], "unmatched": 0}),
    ],
)
def test_split_rows_are_where_they_belong(
    tables: Tables, every: bool, unmatched: Unmatched, found: dict[str, Any]
) -> None:
    landed, target = tables.make("temp.t", SCHEMA, ROWS), tables.make("d.t", SCHEMA)
    branches = (tables.make("d.one", SCHEMA), tables.make("d.two", SCHEMA))
    conditions = (Branch("t.id = 1"), Branch("id = 2 OR name = 'b' OR (id IS NULL AND NULL)"))
    shaping = Shaping(branches=conditions, every_branch=every, unmatched=unmatched)
    count = tables.publish(Publication(landed, target, shaping, branches))
    ids = {name: [row["id"] for row in tables.rows(f"d.{name}", "id")] for name in ("one", "two", "t")}
    assert {**ids, "unmatched": count} == found


def test_rows_are_made_unique_before_they_are_split(tables: Tables) -> None:
    landed, target = tables.make("temp.t", SCHEMA, ROWS), tables.make("d.t", SCHEMA)
    branches = (tables.make("d.one", SCHEMA), tables.make("d.two", SCHEMA))
    shaping = Shaping(
        unique_columns=("id",),
        order_by=("type_id DESC",),
        branches=(Branch("type_id = 1"), Branch("type_id = 2")),
        unmatched=Unmatched.REFUSE,
    )
    plan = Publication(landed, target, shaping, branches)
    assert tables.publish(plan) == 1
    assert [row["id"] for row in tables.rows("d.one")] == [2]
    assert [row["name"] for row in tables.rows("d.two")] == ["b"]


def test_computed_columns_may_decide_without_being_stored(tables: Tables) -> None:
    landed, target = tables.make("temp.t", SCHEMA, ROWS), tables.make("d.t", SCHEMA)
    branches = (tables.make("d.one", SCHEMA),)
    shaping = Shaping(transform={"half": "MOD(t.type_id, 2)"}, branches=(Branch("half = 0"),), unmatched=Unmatched.DROP)
    tables.publish(Publication(landed, target, shaping, branches))
    assert [row["name"] for row in tables.rows("d.one")] == ["b"]


def test_columns_the_destination_has_not_are_left_out_at_any_depth(tables: Tables) -> None:
    landed = tables.make(
        "temp.t",
        "id INTEGER, more STRING, info {a INTEGER, b STRING}, list {x INTEGER, y {z INTEGER, w STRING}}*, n INTEGER",
        [
            {
                "id": 1,
                "more": "m",
                "info": {"a": 1, "b": "b"},
                "list": [{"x": 1, "y": {"z": 2, "w": "w"}}, {"x": 2}],
                "n": 5,
            },
            {"id": 2},
        ],
    )
    schema = "n NUMERIC, id INTEGER, info {b STRING, c STRING, a NUMERIC}, list {y {z INTEGER}, x INTEGER}*"
    for name, method in {"a": CopyMethod.QUERY, "b": CopyMethod.DML}.items():
        target = tables.make(f"d.{name}", schema)
        tables.publish(Publication(landed, target, method=method, absent=Drift.DISCARD_VALUE))
        assert tables.rows(f"d.{name}", "id") == [
            {
                "n": 5,
                "id": 1,
                "info": {"b": "b", "c": None, "a": 1},
                "list": [{"y": {"z": 2}, "x": 1}, {"y": None, "x": 2}],
            },
            {"n": None, "id": 2, "info": None, "list": []},
        ]
    with pytest.raises(BadInput, match="has no column more"):
        publish_statements(Publication(landed, tables.shape("d.a")))


def test_a_computed_column_can_be_added_to_the_table(tables: Tables) -> None:
    landed, target = tables.make("temp.t", SCHEMA, ROWS[:1]), tables.make("d.t", "id INTEGER")
    shaping = Shaping(transform={"doubled": "t.id * 2"})
    tables.publish(Publication(landed, target, shaping, absent=Drift.EVOLVE))
    assert tables.rows("d.t") == [{"id": 1, "type_id": 1, "name": "a", "doubled": 2}]


def test_a_missing_table_is_made_from_the_rows(tables: Tables) -> None:
    landed = tables.make("temp.t", SCHEMA, ROWS[:1])
    target = TableShape(TableName("p", "d", "new"))
    tables.publish(Publication(landed, target, Shaping(transform={"extra": "1.5"}), append=False))
    assert tables.rows("d.new") == [{"id": 1, "type_id": 1, "name": "a", "extra": 1.5}]


STORED = [{"id": 1, "type_id": 5, "name": "old"}, {"id": 3, "type_id": 5, "name": "stays"}]
BATCH = [
    {"id": 1, "type_id": 6, "name": "new"},
    {"id": 1, "type_id": 7, "name": "newest"},
    {"id": 2, "type_id": 1, "name": "added"},
    {"id": 3, "type_id": 4, "name": "older"},
]


@pytest.mark.parametrize(
    ("upsert", "found"),
    [
        (UpsertPlan(Upsert(keys=("id",))), [(1, 7, "newest"), (2, 1, "added"), (3, 4, "older")]),
        (
            UpsertPlan(Upsert(keys=("id",), mode=UpsertMode.INSERT)),
            [(1, 5, "old"), (2, 1, "added"), (3, 5, "stays")],
        ),
        (UpsertPlan(Upsert(keys=("id",), mode=UpsertMode.UPDATE)), [(1, 7, "newest"), (3, 4, "older")]),
        (UpsertPlan(Upsert(keys=("ID",), update=("name",))), [(1, 5, "newest"), (2, 1, "added"), (3, 5, "older")]),
        (
            UpsertPlan(Upsert(keys=("id",)), update_when="t.type_id > dest.type_id"),
            [(1, 7, "newest"), (2, 1, "added"), (3, 5, "stays")],
        ),
        (UpsertPlan(Upsert(keys=("id",)), delete_when="t.name IN ('added', 'older')"), [(1, 7, "newest")]),
        (
            UpsertPlan(Upsert(keys=("id",)), delete_when="dest.type_id > t.type_id"),
            [(1, 7, "newest"), (2, 1, "added")],
        ),
    ],
    ids=["all", "insert", "update", "columns", "newer", "delete", "delete by both"],
)
def test_upserts(tables: Tables, upsert: UpsertPlan, found: list[tuple[Any, ...]]) -> None:
    landed, target = tables.make("temp.t", SCHEMA, BATCH), tables.make("d.t", SCHEMA, STORED)
    shaping = Shaping(unique_columns=upsert.spec.keys, order_by=("type_id DESC",))
    tables.publish(Publication(landed, target, shaping, upsert=upsert))
    assert [tuple(row.values()) for row in tables.rows("d.t", "id")] == found


def test_a_row_without_a_key_is_always_added(tables: Tables) -> None:
    stored = [{"id": None, "type_id": 1, "name": "there"}]
    batch = [{"id": None, "type_id": 1, "name": name} for name in "abb"] + [{"id": 1, "type_id": None, "name": "c"}] * 2
    landed, target = tables.make("temp.t", SCHEMA, batch), tables.make("d.t", SCHEMA, stored)
    shaping = Shaping(unique_columns=("id", "type_id"), keep_keyless=True)
    tables.publish(Publication(landed, target, shaping, upsert=UpsertPlan(Upsert(keys=("id", "type_id")))))
    assert [row["name"] for row in tables.rows("d.t", "name")] == ["a", "b", "b", "c", "c", "there"]


def test_an_upsert_may_look_at_what_it_does_not_store(tables: Tables) -> None:
    landed = tables.make("temp.t", "id INTEGER, name STRING, gone BOOLEAN", [{"id": 1, "gone": True}, {"id": 2}])
    target = tables.make("d.t", "id INTEGER, name STRING", [{"id": 1}])
    plan = UpsertPlan(Upsert(keys=("id",)), delete_when="t.gone")
    tables.publish(Publication(landed, target, Shaping(unique_columns=("id",)), upsert=plan))
    assert tables.rows("d.t") == [{"id": 2, "name": None}]


def test_required_columns_stay_required(tables: Tables) -> None:
    landed, target = (
        tables.make("temp.t", SCHEMA, ROWS),
        tables.make("d.t", "id INTEGER!, type_id INTEGER, name STRING"),
    )
    with pytest.raises(JobFailed):
        tables.publish(Publication(landed, target))
    tables.publish(Publication(landed, target, Shaping(criteria="id IS NOT NULL")))
    assert len(tables.rows("d.t")) == 3
