"""Warnings about variables that are a number in the SQL of one file and text in that of another.

A variable that stands alone in SQL is a literal: `12` is a number, as if it had been pasted there, and `00012`, which
would lose its zeros, is text. So where a file name's part is used like that, the type of an expression may change from
file to file: with names padded to five digits, at the ten-thousandth. Whether it may is tried out with texts that the
pattern takes; what is a number or text for all of them is left alone, and so is what is quoted or cast.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from ingestd.rules.actions import Request
from ingestd.rules.expansion import Scope
from ingestd.rules.fields import compile_pattern
from ingestd.rules.functions import ExpressionError, parse_expression
from ingestd.rules.rule import Rule
from ingestd.rules.shaping import expressions_of
from ingestd.rules.sql import expand_sql, is_number

Path = tuple[str | int, ...]

_TRIED = (
    *("12", "00012", "x", "7", "07", "2024", "20240131", "10000", "0001", "a_b", "31", "01", "abc", "x-1"),
    *("1" * length for length in (3, 6, 9, 10, 12, 13, 14)),
    *("0" * length for length in (3, 6, 9, 10, 12, 13, 14)),
)
_TIMES = (datetime(2024, 1, 31, 5, tzinfo=UTC), datetime(2024, 12, 31, 12, tzinfo=UTC))
_CAST = re.compile(r"\b(?:SAFE_)?CAST\s*\(\s*\$(?:\{[^}]*\}|[\w.\[\]]+)\s+AS\b", re.IGNORECASE)


def expression_types(rule: Rule) -> Iterator[tuple[Path, str]]:
    """Warnings about the expressions of the destination."""
    for path, text in expressions_of(rule.spec.dest):
        for message in _bare(rule, text):
            yield path, message


def request_types(rule: Rule, request: object) -> Iterator[tuple[Path, str]]:
    """Warnings about the SQL of an action, with the key that has it."""
    if not isinstance(request, Request):
        return
    for name in sorted(request.sql_fields):
        text = getattr(request, name)
        if not text:
            continue
        url = getattr(request, "sql_url", None) if name == "sql" else None
        key = "SQLURL" if url else type(request).model_fields[name].alias or name
        for message in _bare(rule, text, legacy=bool(getattr(request, "use_legacy", False))):
            yield (key,), f"{url}: {message}" if url else message


def _bare(rule: Rule, sql: str, *, legacy: bool = False) -> Iterator[str]:
    names = [*(parameter.name for parameter in rule.spec.dest.parameters), "Hour"]
    if not any(name in sql for name in names):
        return
    marks = {name: f"v{number}" for number, name in enumerate(dict.fromkeys(names))}
    found: dict[str, object] = {}
    try:
        expand_sql(_CAST.sub("CAST(NULL AS", sql), {**marks, "Params": marks}, legacy=legacy, parameters=found)
    except ValueError:
        return
    used = set(found.values())
    for name, mark in marks.items():
        if mark in used and (both := wavering(rule).get(name)):
            number, text = both
            yield (
                f"${name} stands bare, so its type changes from file to file: {number} is a number, {text!r} is text; "
                f"write '${name}' for text, or CAST(${name} AS INT64)"
            )


@lru_cache(maxsize=1024)
def wavering(rule: Rule) -> Mapping[str, tuple[str, str]]:
    """Variables whose value is a number for some files and text for others, each with an example of either."""
    numbers: dict[str, str] = {}
    texts: dict[str, str] = {}
    groups = [_taken(body) for body in group_bodies(rule.spec.dest.pattern or "")]
    for turn in range(len(_TRIED)):
        now = _TIMES[turn % len(_TIMES)]
        known: dict[str, object] = {"Date": f"{now:%Y%m%d}", "Hour": f"{now:%H}", "EventID": "117"}
        captured = [tried[turn % len(tried)] for tried in groups]
        for parameter in rule.spec.dest.parameters:
            scope = Scope(known, captured, "gs://b/x", prefixes=("Date", "Hour"))
            try:
                value = parse_expression(parameter.expression).evaluate(scope, now)
            except ExpressionError:
                continue  # no such file
            known[parameter.name] = value
        for name, value in known.items():
            if isinstance(value, str) and "$" not in value:
                (numbers if is_number(value) else texts).setdefault(name, value)
    return {name: (number, texts[name]) for name, number in numbers.items() if name in texts}


def _taken(body: str) -> tuple[str, ...]:
    """Those of the texts that a group takes; if none is, the group is taken not to waver."""
    try:
        pattern = compile_pattern(f"^(?:{body})$")
    except ValueError:
        return ("x",)
    return tuple(text for text in _TRIED if pattern.search(text)) or ("x",)


def group_bodies(pattern: str) -> list[str]:
    """What stands inside each capture group of a pattern, in the order of their numbers."""
    opened: list[tuple[int, int]] = []  # the group's number (0: it captures nothing), and where its body begins
    bodies: dict[int, str] = {}
    at = number = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "[":
            at = _class_end(pattern, at)
        elif char == "(":
            named = re.compile(r"\(\?P?<\w+>").match(pattern, at)
            captures = named is not None or pattern[at + 1 : at + 2] != "?"
            number += captures
            opened.append((number if captures else 0, named.end() if named else at + 1))
        elif char == ")" and opened:
            own, start = opened.pop()
            if own:
                bodies[own] = pattern[start:at]
        at += 1
    return [bodies.get(one, "") for one in range(1, number + 1)]


def _class_end(pattern: str, at: int) -> int:
    """Where a character class ends; a bracket right after its beginning is one of its characters."""
    at += 1
    if pattern[at : at + 1] == "^":
        at += 1
    first = at
    while at < len(pattern) and (pattern[at] != "]" or at == first):
        if pattern[at] == "\\":
            at += 1
        elif pattern.startswith("[:", at):
            at = max(at, pattern.find(":]", at) + 1)
        at += 1
    return at
