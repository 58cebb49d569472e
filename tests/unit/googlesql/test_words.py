"""What is known of a text by its tokens alone."""

import pytest

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.lexer import pieces
from ingestd.googlesql.words import (
    is_script,
    named_in,
    parameters_in,
    paths_in,
    qualifies,
    returns_rows,
    split_order,
    transactions,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Id + `d.Price`", {"id", "price"}),
        ("CONCAT('id', \"price\") -- id", set()),
        ("@id + r'price' + b'id' /* price */", set()),
        ("t.id.price", {"id", "price"}),
        ("$id", {"id"}),
        ("'unclosed", {"id", "price"}),
    ],
)
def test_names_are_no_strings_comments_or_parameters_and_in_doubt_all_of_them(text: str, found: set[str]) -> None:
    assert named_in([text], ["id", "price"]) == found


def test_parameters_are_found_where_they_are_some() -> None:
    names = ["Day", "other"]
    assert parameters_in("SELECT @day, '@other' -- @other", names) == {"Day"}
    assert parameters_in("SELECT @@other, @`other`", names) == {"other"}
    assert parameters_in("SELECT 'unclosed", names) == {"Day", "other"}


def test_a_name_qualifies_what_follows_its_dot() -> None:
    assert qualifies("t", "T . x = 1")
    assert qualifies("t", "`t`.x")
    assert not qualifies("t", "x.t = 't.x' -- t.x")


def test_paths_are_told_with_their_places() -> None:
    text = "t . a.b = `q`.c + f(key) + net.host(key) -- key"
    assert [(text[start:end], names) for start, end, names in paths_in(text)] == [
        ("t . a.b", ("t", "a", "b")),
        ("key", ("key",)),
        ("key", ("key",)),
    ]
    assert list(paths_in("'unclosed")) == []


def test_an_order_is_an_expression_a_direction_and_a_place_for_nulls() -> None:
    assert split_order("a DESC") == ("a", True, True)
    assert split_order(" IF(a, 'x DESC', b) ASC NULLS LAST ") == ("IF(a, 'x DESC', b)", False, True)
    assert split_order("a -- DESC") == ("a", False, False)
    for wrong in ("a, b", "a DESCC", "", "a NULLS"):
        with pytest.raises(SqlError):
            split_order(wrong)


def test_a_query_is_known_by_its_beginning_in_any_dialect() -> None:
    assert returns_rows(r"/* x */ ((SELECT '\d' FROM [p:d.t]")
    assert returns_rows("with x AS (SELECT 1) SELECT 1")
    assert not returns_rows("INSERT d.t SELECT 1")
    assert not returns_rows("-- SELECT 1")


def test_transactions_are_found_by_their_lines() -> None:
    script = "BEGIN TRANSACTION;\nINSERT d.t SELECT 'COMMIT TRANSACTION';\n-- COMMIT TRANSACTION\nCOMMIT\nTRANSACTION;"
    assert transactions(script) == ((1, 4),)
    assert transactions("BEGIN\n  SELECT 1;\nEND;") == ()
    assert transactions("BEGIN;\nSELECT 1;\nROLLBACK TRANSACTION;") == ((1, float("inf")),)


def test_a_script_has_something_after_a_semicolon() -> None:
    assert is_script("SELECT 1; SELECT 2")
    assert not is_script("SELECT ';' -- ;\n;;")
    assert is_script("SELECT 'unclosed")


def test_any_text_is_taken_apart_around_its_holes() -> None:
    text = "a_$x r'\\'$x' `$x` [$x] -- $x\n$x'unclosed"
    holes = {at: at + 2 for at in range(len(text)) if text.startswith("$x", at)}
    found = [(one.kind, text[one.start : one.end], text[slice(*one.body)]) for one in pieces(text, holes)]
    assert [one for one in found if one[0] not in ("space", "other")] == [
        ("word", "a_$x", "a_$x"),
        ("string", "r'\\'$x'", "\\'$x"),
        ("quoted", "`$x`", "$x"),
        ("word", "$x", "$x"),
        ("comment", "-- $x\n", "-- $x\n"),
        ("word", "$x", "$x"),
        ("string", "'unclosed", "unclosed"),
    ]
    assert ("quoted", "[$x]", "$x") in [
        (one.kind, text[one.start : one.end], text[slice(*one.body)]) for one in pieces(text, holes, brackets=True)
    ]
    assert "".join(one[1] for one in found) == text
