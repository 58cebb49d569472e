"""One expander: plain and braced names, paths, groups, hashes and functions; what it does not know stays."""

from datetime import UTC, datetime

import pytest

from ingestd.rules.expansion import Scope, expand, fnv1_64, unknown_variables
from ingestd.rules.functions import FUNCTIONS, ExpressionError, parse_expression
from ingestd.rules.time_formats import format_time, parse_time

NOW = datetime(2024, 3, 5, 21, 7, 9, 123456, tzinfo=UTC)
VALUES = {
    "EventID": "77",
    "LoadURIs": ["gs://b/1", "gs://b/2"],
    "Source": {"URL": "gs://b/1", "Tags": [{"k": 5}]},
    "n": 3,
    "yes": True,
    "none": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x-$EventID-y", "x-77-y"),
        ("${EventID}_x", "77_x"),
        ("$EventID_x", "$EventID_x"),
        ("gs://b/$EventID.json", "gs://b/77.json"),
        ("$Source.URL", "gs://b/1"),
        ("$Source.Tags[0].k!", "5!"),
        ("${Source.Tags[0].k}", 5),
        ("${Source.Nope}", "${Source.Nope}"),
        ("$Source.Tags[9] $Source.Nope", "$Source.Tags[9] $Source.Nope"),
        ("$n", 3),
        (" $n ", 3),
        ("$n$n", "33"),
        ("$yes/$none/", "true//"),
        ("$LoadURIs", ["gs://b/1", "gs://b/2"]),
        ("uris: $LoadURIs", 'uris: ["gs://b/1", "gs://b/2"]'),
        ("$Unknown ${Unknown} $ ${ $$ $-", "$Unknown ${Unknown} $ ${ $$ $-"),
        ("$1 $Mod(4)", "$1 $Mod(4)"),
    ],
)
def test_variables_are_replaced_and_unknown_ones_stay(text: str, expected: object) -> None:
    assert expand(text, VALUES) == expected


def test_expansion_reaches_keys_lists_and_nested_values() -> None:
    document = {"a": ["$LoadURIs", "x"], "k$EventID": {"b": "$n"}, "c": 1, "d": None}
    assert expand(document, VALUES) == {
        "a": ["gs://b/1", "gs://b/2", "x"],
        "k77": {"b": 3},
        "c": 1,
        "d": None,
    }


def test_groups_are_found_longest_first() -> None:
    ten = tuple("abcdefghij")
    assert Scope({}, ten).expand_text("$1$10$11") == "ajaa"[:1] + "j" + "a1"
    assert Scope({}, ten[:2]).expand_text("$1$10$2") == "aa0b"
    assert Scope({}, ten).expand_text("${1}0${10}") == "a0j"
    assert Scope({}, ten).expand_text("$0 $20240131") == "$0 $20240131"


def test_the_hash_is_bqtails() -> None:
    assert fnv1_64("") == 3750763034362895579
    assert fnv1_64("gs://mybucket/data.avro") == 6575480621263085198
    assert Scope({}, source_url="").expand_text("t_$Mod(4)_${Mod(7)}") == "t_3_0"
    assert Scope({}, source_url="gs://mybucket/data.avro").expand_text("$Mod(7)") == 2
    assert Scope({}, source_url="x").expand_text("$Mod(0)") == "$Mod(0)"


def test_unknown_variables_are_reported_in_order() -> None:
    document = {"a": "$Zeta $EventID ${Alpha}", "b": ["$1", "$Mod(3)", "d.t$20240101", "$__PARTITIONS_SUMMARY__"]}
    assert unknown_variables(document, {"EventID"}) == ["$Zeta", "$Alpha", "$1"]
    assert unknown_variables("$2", (), groups=2) == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$Replace($ToLower($4),'_','')_$1$2$3", "logsxxx_20190204"),
        ("$AsInt($2)", 2),
        ("$AsInt('7.9')", 7),
        ("$AsFloat($2)", 2.0),
        ("$AsBool('yes')", True),
        ("$Join($Split($4, '_'), \"-\")", "logs-XXX"),
        ("$Split($4, '_')", ["logs", "XXX"]),
        ("$Len($4)", 8),
        ("$IndexOf($4, 's_')", 3),
        ("$Concat($1, '-', $2)", "2019-02"),
        ("$ToUpper($4)", "LOGS_XXX"),
        ("$TrimSpace('  a ')", "a"),
        ("$QueryEscape('a b&c')", "a+b%26c"),
        ("$QueryUnescape('a+b%26c')", "a b&c"),
        ("$Base64Encode($1)", "MjAxOQ=="),
        ("$Base64Decode('MjAxOQ==')", "2019"),
        ("$Keys($Merge('{\"a\":1}', '{\"b\":2}'))", ["a", "b"]),
        ("$Sum('[1,2.5]')", 3.5),
        ("$FormatTime($1$2$3, 'yyyyMMdd')", "20190204"),
        ("$FormatTime('now', 'yyyy-MM-dd_HH')", "2024-03-05_21"),
        ("$FormatTime('2 days ago', 'yyyyMMdd')", "20240303"),
        ("$FormatTime('2019-02-04T10:00:00Z', 'HH:mm', 'America/New_York')", "05:00"),
        ("$FormatTime('1549274400', 'yyyy-MM-dd HH')", "2019-02-04 10"),
        ("$FormatTime('now', 'yyyyMMddHHmm', 'UTC', 'yyyyMMddHH')", "202403052100"),
        ("$Elapsed('2024-03-05T16:07:02Z')", "5h7s"),
        ("plain text, with (brackets)", "plain text, with (brackets)"),
    ],
)
def test_functions_of_expressions(expression: str, expected: object) -> None:
    scope = Scope({}, ("2019", "02", "04", "logs_XXX"))
    assert parse_expression(expression).evaluate(scope, NOW) == expected


def test_a_group_with_commas_quotes_and_brackets_stays_one_argument() -> None:
    scope = Scope({}, ("a,b')x(", "_"))
    assert parse_expression("$Replace($1,',',$2)").evaluate(scope, NOW) == "a_b')x("


def test_random_numbers_are_fixed_for_a_file() -> None:
    expression = parse_expression("$Rand(0, 1000)")
    assert expression.evaluate(Scope({}), NOW) == expression.evaluate(Scope({}), NOW)


@pytest.mark.parametrize(
    "expression",
    ["$AsInt('x')", "$FormatTime('soon','yyyy')", "$AsMap('[1]')", "$Rand(2,1)", f"$AsData('{'[' * 5000}')"],
    ids=lambda expression: expression[:12],
)
def test_a_function_that_fails_says_which(expression: str) -> None:
    with pytest.raises(ExpressionError, match=rf"^\{expression.split('(')[0]}\(\) failed: "):
        parse_expression(expression).evaluate(Scope({}), NOW)


def test_every_function_is_described() -> None:
    assert all(function.description for function in FUNCTIONS.values())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-03-05T21:07:09.123"),
        ("yyMMdd hh a", "240305 09 PM"),
        ("MMM MMMM EEE EEEE D", "Mar March Tue Tuesday 65"),
        ("yyyyMMddHHmmss Z", "20240305210709 +0000"),
        ("XXX z", "Z UTC"),
        ("'it''s' yyyy", "it's 2024"),
        ("M/d/yyyy H", "3/5/2024 21"),
    ],
)
def test_java_formats(pattern: str, text: str) -> None:
    assert format_time(NOW, pattern) == text


def test_times_are_read_by_format_first() -> None:
    assert parse_time("05/03/2024", "dd/MM/yyyy", NOW) == datetime(2024, 3, 5, tzinfo=UTC)
    assert parse_time("Mar 05 24", "MMM dd yy", NOW) == datetime(2024, 3, 5, tzinfo=UTC)
    assert parse_time("yesterday", "yyyy", NOW) == datetime(2024, 3, 4, 21, 7, 9, 123456, tzinfo=UTC)
