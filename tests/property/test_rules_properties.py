"""What must hold for any rules, any paths, any text."""

import contextlib
import json
import re
from typing import Any

import sqlglot
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot.errors import TokenError
from sqlglot.tokens import TokenType
from tests.support.naive_matching import find_naively

from ingestd.documents import DocumentError, native, read_documents, validate
from ingestd.rules.expansion import Scope, expand, unknown_variables
from ingestd.rules.functions import ExpressionError, parse_expression
from ingestd.rules.matching import RuleIndex, path_of
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec
from ingestd.rules.sql import UnsafeValue, expand_sql, literal

# Few letters, so that random rules and paths meet often.
pieces = st.lists(st.sampled_from(["a", "b", "/", ".j", ".gz", "é"]), max_size=6).map("".join)
patterns = st.sampled_from(["", "", "a", "^/a", r"b.*\.gz$", "a|b", "(a)/(b)?", "[^/]+/b", "é", "//", r"(?i)A\.J"])
whens = st.fixed_dictionaries(
    {},
    optional={
        "Prefix": pieces.map(lambda text: f"/{text}"),
        "Suffix": pieces,
        "Filter": patterns,
        "Exclusion": patterns,
        "Directory": st.booleans(),
    },
)


@st.composite
def rule_sets(draw: st.DrawFn) -> list[Rule]:
    documents = draw(st.lists(st.tuples(whens, st.booleans(), patterns), max_size=25))
    return [
        Rule.of(
            RuleSpec.model_validate(
                {
                    "When": when,
                    "Disabled": disabled and number % 3 == 0,
                    "Dest": {"Table": "d.t", **({"Pattern": pattern} if pattern and number % 4 == 0 else {})},
                }
            ),
            f"{number}.yaml",
        )
        for number, (when, disabled, pattern) in enumerate(documents)
    ]


@settings(max_examples=200, deadline=None)
@given(rule_sets(), st.lists(pieces, min_size=1, max_size=8))
def test_the_index_answers_what_asking_every_rule_would(rules: list[Rule], names: list[str]) -> None:
    index = RuleIndex(rules)
    for name in names:
        assert index.route(name) == find_naively(rules, path_of(name))


dollars = st.text(st.sampled_from("$${}()[].,'\"_aA1 09\\`-/\n*"), max_size=60) | st.text(max_size=60)
plain_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.dictionaries(
    st.sampled_from(["a", "A", "aA", "a1", "Mod", "Date"]),
    st.recursive(
        plain_values,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("aA1"), inner, max_size=2),
    ),
)


@settings(max_examples=200, deadline=None)
@given(dollars, values, st.lists(st.text(max_size=5), max_size=12))
def test_the_expander_never_raises(text: str, known: dict[str, Any], groups: list[str]) -> None:
    scope = Scope(known, groups, source_url="gs://b/o", prefixes=("Date",))
    scope.expand({"k": [text, {text: text}]})
    unknown_variables([text], known, groups=len(groups))
    if "$" not in text:
        assert expand(text, known) == text


@settings(max_examples=300, deadline=None)
@given(dollars)
def test_expressions_are_read_or_refused(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        parse_expression(text)


STATEMENTS = [
    "SELECT '$x', \"$x\", '''$x''', \"\"\"$x\"\"\" FROM t",
    "SELECT r'$x', R\"a$x\", r'''$x''', b'$x', rb'$x' FROM t",
    "SELECT r'\\d$x\\'', '\\'$x', 'a\\\\$x' FROM t",
    "SELECT $x, f($x), $x+1, [$x], ($x) AS c, -$x FROM t",
    "SELECT * FROM t WHERE a = $x AND b IN ('$x') OR c LIKE '%${x}%' ORDER BY $x",
    "SELECT 1 -- $x\n, 2 # $x\n, 3 /* $x */, 4 /* *$x*/, 5 /*$x/*/",
    "SELECT * FROM ds.t_$x, ds.$x, ds.${x}_$x, `ds.t_$x`, `$x` AS q",
    "SELECT * FROM $x JOIN ${x} USING (a)",
    "INSERT INTO $x (a) VALUES ($x, '$x')",
    "SELECT $x$x, $x'a', '$x'$x, a$x, 1$x",
    "MERGE INTO `$x` USING (SELECT '$x') ON FALSE WHEN NOT MATCHED THEN INSERT ROW",
    "SELECT EXTRACT(YEAR FROM $x), DATE '$x', TIMESTAMP \"$x\"",
]
# Texts that end strings, open comments or hide behind escapes in one dialect or another.
SHARP = ["'", '"', "`", "\\", "\\'", "''", '"""', "'''", "--", "#", "/*", "*/", ";", "$x", "${x}", ")", "(", "r'", "b'"]
SHARP += ["\n", "\r", "\u2028", "\x00", " ", " OR 1=1", "DROP", "%", "{", "}", "é", "😀", "/", "*", "@", "a", "0"]
sharp = st.lists(st.sampled_from(SHARP), min_size=1, max_size=8).map("".join) | st.text(min_size=1, max_size=20)

LITERALS = {TokenType.STRING, TokenType.NUMBER, TokenType.RAW_STRING, TokenType.BYTE_STRING}


def structure(sql: str) -> list[tuple[Any, str]]:
    """Tokens without the text of literals, quoted names and comments. Any kind of literal counts as one kind."""
    kept: list[tuple[Any, str]] = []
    for token in sqlglot.tokenize(sql, read="bigquery"):
        quoted = token.token_type in LITERALS or sql[token.start : token.start + 1] == "`"
        if token.token_type in LITERALS:
            kept.append(("literal", ""))
        else:
            kept.append((token.token_type, "" if quoted else token.text))
    return kept


def expanded(sql: str, value: Any) -> str | None:
    try:
        return expand_sql(sql, {"x": value})
    except UnsafeValue:
        return None


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(STATEMENTS), sharp)
@example("SELECT 1 /* *$x*/", "/")
@example("SELECT '$x'", "\\")
@example("SELECT r'$x'", "\\")
@example("SELECT `$x`", "a` FROM b; --")
@example("SELECT * FROM ds.t_$x", "a.b")
def test_no_value_changes_the_structure_of_a_statement(sql: str, value: str) -> None:
    actual, harmless = expanded(sql, value), expanded(sql, "harmless")
    assert harmless is not None
    if actual is not None:
        assert structure(actual) == structure(harmless), actual


@settings(max_examples=300, deadline=None)
@given(sharp)
def test_a_value_inside_a_string_is_read_back_as_it_was(value: str) -> None:
    """Decoded by GoogleSQL's own rules for escapes, written out here independently of the code under test."""
    for sql, quote in (("SELECT '$x'", 1), ('SELECT "$x"', 1), ("SELECT '''$x'''", 3), ("SELECT r'$x'", 1)):
        inside = expand_sql(sql, {"x": value}).removeprefix("SELECT ")[quote:-quote]
        assert unescaped(inside) == re.sub("[\ud800-\udfff]", "?", value)


def unescaped(text: str) -> str:
    simple = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "`": "`"}

    def one(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if escape[0] in "uU" else simple[escape]

    return re.sub(r"\\(u[0-9a-f]{4}|U[0-9a-f]{8}|.)", one, text, flags=re.DOTALL)


@settings(max_examples=200, deadline=None)
@given(plain_values | st.lists(plain_values, max_size=3))
def test_every_literal_is_one_expression(value: Any) -> None:
    parsed = sqlglot.parse_one(f"SELECT {literal(value)} AS c", dialect="bigquery")
    assert len(parsed.expressions) == 1
    assert parsed.expressions[0].alias == "c"


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("SELECT '\"`#-*/\\$x{}rb\n.,()"), max_size=50), sharp)
def test_any_statement_can_be_filled_in(sql: str, value: str) -> None:
    """Also nonsense: what comes out has as many statements as what went in."""
    actual, harmless = expanded(sql, value), expanded(sql, "harmless")
    if actual is None or harmless is None:
        return
    try:
        wanted = structure(harmless)
    except TokenError:
        return
    assert [kind for kind, _ in structure(actual)].count(TokenType.SEMICOLON) == [kind for kind, _ in wanted].count(
        TokenType.SEMICOLON
    )


document_text = (
    st.text(st.sampled_from("a:-{}[],\"'\n \t#&*!|>%@`?<1~\\u0DE"), max_size=80)
    | st.text(max_size=80)
    | st.binary(max_size=80)
)


@settings(max_examples=500, deadline=None)
@given(document_text, st.sampled_from(["r.yaml", "r.json", "r.yml"]))
@example('"\\UFFFFFFFF"', "r.yaml")
@example('{"a": "\\ud800"}', "r.json")
@example("1" * 5000, "r.yaml")
def test_the_reader_raises_nothing_but_document_errors(data: str | bytes, file: str) -> None:
    try:
        for document in read_documents(data, file):
            native(document)
            validate(RuleSpec, document, file)
    except DocumentError as error:
        assert error.problems
        assert all(problem.file == file and problem.message for problem in error.problems)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(json_values, st.booleans())
def test_json_is_read_as_the_standard_library_reads_it(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert native(read_documents(text, "a.json")[0]) == json.loads(text)
