"""A rule and a file give one table, the same at every delivery; an object's name never leads it elsewhere."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.rules import rule, spec

from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.model.tables import TableName
from ingestd.rules.destination import Destination, DestinationError, expand_destination, told_apart
from ingestd.rules.rule import Rule

TIME = datetime(2024, 3, 5, 21, 7, tzinfo=UTC)


def file(name: str, bucket: str = "bucket") -> FileVersion:
    return FileVersion(ObjectRef(bucket, name), Generation(1), event_time=TIME)


def destination(name: str, values: dict[str, Any] | None = None, **dest: Any) -> Destination:
    return expand_destination(rule(Dest=dest), file(name), values)


def test_groups_of_the_pattern_name_the_table() -> None:
    found = destination(
        "data/2019/02/04/logs_xxx.avro",
        Table="proj:dataset:table_$1$2$3",
        Pattern=r"/data/(\d{4})/(\d{2})/(\d{2})/.+",
    )
    assert found.table == TableName("proj", "dataset", "table_20190204")


def test_parameters_name_the_table_and_are_kept() -> None:
    found = destination(
        "data/2019/02/04/logs_XXX.avro",
        Table="ds.$App",
        Pattern=r"/data/(\d{4})/(\d{2})/(\d{2})/(\w+)\.avro",
        Parameters=[
            {"Name": "Day", "Expression": "$1$2$3"},
            {"Name": "App", "Expression": "$Replace($ToLower($4),'_','')_$Day"},
        ],
    )
    assert found == Destination(
        TableName(None, "ds", "logsxxx_20190204"), None, {"Day": "20190204", "App": "logsxxx_20190204"}
    )


def test_date_hour_and_hash_come_from_the_file() -> None:
    found = destination("data.avro", Table="ds.t_$Date_raw_${Hour}", Partition="$Date$Hour")
    assert (found.table.table, found.partition) == ("t_20240305_raw_21", "2024030521")
    assert found.target.rest == {"datasetId": "ds", "tableId": "t_20240305_raw_21$2024030521"}
    hashed = expand_destination(rule(Dest={"Table": "ds.t_$Mod(7)"}), file("data.avro", "mybucket"))
    assert hashed.table.table == "t_2"


def test_values_of_the_caller_are_known() -> None:
    found = destination("x", {"EventID": "77", "ProjectID": "p"}, Table="$ProjectID.ds.t_$EventID")
    assert found.table == TableName("p", "ds", "t_77")


def test_a_decorator_in_the_table_is_its_partition() -> None:
    assert destination("x", Table="ds.t$20240131") == Destination(TableName(None, "ds", "t"), "20240131")


@pytest.mark.parametrize(
    ("name", "dest", "message"),
    [
        ("x", {"Table": "ds.t_$GroupID"}, r"Dest.Table 'ds.t_\$GroupID': \$GroupID has no value for this file"),
        ("a;b", {"Table": "ds.t_$1", "Pattern": "/(.*)"}, "is not a table id"),
        ("a`b", {"Table": "ds.t_$1", "Pattern": "/(.*)"}, "would change the destination|is not"),
        ("x", {"Table": "ds.t", "Partition": "$1", "Pattern": "(y?)"}, "becomes empty"),
        ("a-b", {"Table": "ds.t", "Partition": "$1", "Pattern": "/(.*)"}, "is not a partition id"),
        ("x", {"Table": "ds.t", "Parameters": [{"Name": "A", "Expression": "$AsInt(x)"}]}, "parameter A: .AsInt"),
    ],
)
def test_what_cannot_be_named_is_an_error_that_names_rule_and_variable(
    name: str, dest: dict[str, Any], message: str
) -> None:
    with pytest.raises(DestinationError, match=message) as caught:
        expand_destination(rule("orders.yaml", Dest=dest), file(name))
    assert str(caught.value).startswith("rule orders.yaml: ")


@pytest.mark.parametrize("name", ["other.secret", "p:other.secret", "x.y.z", "x$20200101"])
def test_an_object_name_never_moves_rows_into_another_dataset_or_partition(name: str) -> None:
    dest = {"Table": "ds.$1", "Pattern": "/(.*)"}
    with pytest.raises(DestinationError):
        expand_destination(rule(Dest=dest), file(name))


def test_separators_that_the_rule_handles_are_fine() -> None:
    replaced = destination(
        "a.b.c",
        Table="ds.$T",
        Pattern="/(.*)",
        Parameters=[{"Name": "T", "Expression": "$Replace($1,'.','_')"}],
    )
    assert replaced.table.table == "a_b_c"
    timed = destination(
        "2024-01-31T10:00:00Z",
        Table="ds.t_$T",
        Pattern="/(.*)",
        Parameters=[{"Name": "T", "Expression": "$FormatTime($1,'yyyyMMdd')"}],
    )
    assert timed.table.table == "t_20240131"


APART = """
When: {Prefix: /data/}
Dest:
  Table: ds.t
  Pattern: '/data/(\\w+)/(\\w+)'
  Parameters: [{Name: App, Expression: $ToLower($1)}, {Name: Unused, Expression: $2}]
  Transform: {app: $App, at: $Date}
"""


def test_files_whose_rows_depend_on_their_paths_are_told_apart_by_what_is_used() -> None:
    one, two = Rule.of(spec(APART), "u"), Rule.of(spec(APART.replace("$App, at", "'x', at")), "u")
    assert told_apart(one, file("data/Web/a.json")) == "web" == told_apart(one, file("data/WEB/b.json"))
    assert told_apart(one, file("data/app/a.json")) == "app"
    assert told_apart(two, file("data/app/a.json")) == ""


def test_files_whose_rows_go_to_other_tables_of_a_split_are_told_apart() -> None:
    split = "  Schema: {Split: {Mapping: [{When: a, Then: ds.x_$2}, {When: b, Then: ds.y}]}}"
    found = Rule.of(spec(APART.replace("  Transform: {app: $App, at: $Date}", split)), "u")
    assert told_apart(found, file("data/app/a.json")) == "ds.x_a"


@pytest.mark.parametrize(
    ("table", "same"),
    [
        ("d.t_$1", True),
        ("d.t_$Date$Hour", True),
        ("d.t_$Date_raw", True),
        ("d.t_$EventID", False),
        ("d.t_$Mod(1000)", False),
    ],
)
def test_what_is_worked_out_once_for_a_folder_is_what_each_file_would_get(table: str, same: bool) -> None:
    one = rule(Dest={"Pattern": "/data/(\\w+)/", "Table": table})
    moments = [datetime(2024, 5, 1, 12, minute, tzinfo=UTC) for minute in (1, 59)] + [
        datetime(2024, 5, 1, 13, 0, tzinfo=UTC)
    ]
    files = [
        FileVersion(ObjectRef("b", f"data/{folder}/{number}.json"), Generation(number + 1), event_time=moment)
        for number, (folder, moment) in enumerate((folder, moment) for folder in "ab" for moment in moments)
    ]
    found = [expand_destination(one, file, {"EventID": file.event_id, "ProjectID": "p"}) for file in files]
    # With a value that is given for one batch only, nothing is shared.
    alone = [
        expand_destination(one, file, {"EventID": file.event_id, "ProjectID": "p", "GroupID": 1}) for file in files
    ]
    assert found == alone
    assert (found[0] is found[1]) == same
