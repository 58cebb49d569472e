"""The functions of `Dest.Parameters[].Expression`: `$Replace($ToLower($4),'_','')_$1`.

An expression is parsed first and filled with values afterwards, so a capture group that holds a comma, a quote or a
bracket stays one argument. Every function is a pure function of its arguments and of the file: the same file always
gets the same destination, however often its notification is delivered.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from urllib.parse import quote_plus, unquote_plus
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ingestd.documents.problems import did_you_mean
from ingestd.rules.expansion import Scope, fnv1_64, render
from ingestd.rules.references import Reference, find_references, reference_at
from ingestd.rules.time_formats import format_time, parse_time

_CALL = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)\(")


class ExpressionError(ValueError):
    """An expression that cannot be read, or a function that cannot take its arguments."""


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple["Template", ...]


@dataclass(frozen=True, slots=True)
class Template:
    """Text, references (kept with the text they were found in) and calls, in order."""

    parts: tuple["str | Call", ...]

    def evaluate(self, scope: Scope, now: datetime) -> Any:
        """The value: native when the template is one part, else text."""
        if len(self.parts) == 1:
            return _evaluate(self.parts[0], scope, now)
        return "".join(render(_evaluate(part, scope, now)) for part in self.parts)

    def calls(self) -> list[Call]:
        direct = [part for part in self.parts if isinstance(part, Call)]
        return direct + [inner for call in direct for argument in call.arguments for inner in argument.calls()]


def parse_expression(text: str) -> Template:
    """Raises ExpressionError: unknown function, wrong number of arguments, bracket or quote left open."""
    template, _ = _template(text, 0, "")
    for call in template.calls():
        _check(call)
    return template


def _check(call: Call) -> None:
    if call.name not in FUNCTIONS:
        raise ExpressionError(f"unknown function ${call.name}(){did_you_mean(call.name, FUNCTIONS)}")
    least, most = FUNCTIONS[call.name].arguments
    if not least <= len(call.arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ExpressionError(f"${call.name}() takes {wanted} arguments, not {len(call.arguments)}")


def _template(text: str, at: int, stops: str) -> tuple[Template, int]:
    """Parse up to a stop character (or the end when there are none)."""
    parts: list[str | Call] = []
    start = at
    while at < len(text) and text[at] not in stops:
        match = _CALL.match(text, at)
        if match and match[1] != "Mod":
            if start < at:
                parts.append(text[start:at])
            arguments, at = _arguments(text, match.end(), match[1])
            parts.append(Call(match[1], arguments))
            start = at
        elif reference := reference_at(text, at):
            at = reference.end
        else:
            at += 1
    if start < at or not parts:
        parts.append(text[start:at])
    return Template(tuple(parts)), at


def _arguments(text: str, at: int, name: str) -> tuple[tuple[Template, ...], int]:
    arguments: list[Template] = []
    while True:
        while text[at : at + 1].isspace():
            at += 1
        char = text[at : at + 1]
        if char == ")" and not arguments:
            return (), at + 1
        if char in {"'", '"'} and char:
            closing = text.find(char, at + 1)
            if closing < 0:
                raise ExpressionError(f"a quote in ${name}() is never closed")
            argument, at = Template((text[at + 1 : closing],)), closing + 1
            while text[at : at + 1].isspace():
                at += 1
        else:
            argument, at = _template(text, at, ",)")
            argument = _trimmed(argument)
        arguments.append(argument)
        char = text[at : at + 1]
        if char not in {",", ")"}:
            raise ExpressionError(f"${name}( is never closed")
        at += 1
        if char == ")":
            return tuple(arguments), at


def _trimmed(template: Template) -> Template:
    last = template.parts[-1]
    return Template((*template.parts[:-1], last.rstrip())) if isinstance(last, str) else template


def _evaluate(part: "str | Call", scope: Scope, now: datetime) -> Any:
    if isinstance(part, str):
        return scope.expand_text(part)
    function = FUNCTIONS.get(part.name)
    if function is None:
        raise ExpressionError(f"unknown function ${part.name}()")
    values = [argument.evaluate(scope, now) for argument in part.arguments]
    try:
        return function.run(values, now)
    except (ValueError, TypeError, KeyError, ArithmeticError, LookupError) as error:
        raise ExpressionError(f"${part.name}() failed: {error}") from error


@dataclass(frozen=True, slots=True)
class Function:
    arguments: tuple[int, int]
    run: Callable[[list[Any], datetime], Any]
    description: str


def _number(value: Any) -> int | float:
    text = render(value).strip()
    try:
        return int(text)
    except ValueError:
        return float(text)


def _bool(value: Any) -> bool:
    return render(value).strip().lower() in {"1", "true", "yes", "t", "y", "on"}


def _data(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _mapping(value: Any) -> Mapping[str, Any]:
    data = _data(value)
    if not isinstance(data, Mapping):
        raise ValueError("a mapping is needed")  # noqa: TRY004 - one error kind for every bad argument
    return data


def _list(value: Any) -> list[Any]:
    data = _data(value)
    if not isinstance(data, list):
        raise ValueError("a list is needed")  # noqa: TRY004
    return data


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, Mapping, str)) else 0


def _index_of(source: Any, wanted: Any) -> int:
    if isinstance(source, str):
        return source.find(render(wanted))
    return next((index for index, item in enumerate(_list(source)) if render(item) == render(wanted)), -1)


def _decode64(value: Any) -> str:
    try:
        return base64.b64decode(render(value), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("not base64 text") from error


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"unknown time zone {name!r}") from error


def _format_time(arguments: list[Any], now: datetime) -> str:
    pattern = render(arguments[1])
    instant = parse_time(arguments[0], pattern, now)
    if len(arguments) > 2 and arguments[2]:
        instant = instant.astimezone(_zone(render(arguments[2])))
    if len(arguments) > 3:
        truncation = render(arguments[3])
        instant = parse_time(format_time(instant, truncation), truncation, now)
    return format_time(instant, pattern)


def _elapsed(arguments: list[Any], now: datetime) -> str:
    """The largest unit and the seconds, as bqtail shows it: `3d12s`, `5h7s`, `2m30s`."""
    total = int((now - parse_time(arguments[0], "yyyy-MM-dd'T'HH:mm:ssX", now)).total_seconds())
    days, hours, minutes = total // 86400, total // 3600 % 24, total // 60 % 60
    largest = next((f"{count}{unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if count > 0), "")
    return f"{largest}{total % 60}s"


def _rand(arguments: list[Any], now: datetime) -> int:
    low, high = int(_number(arguments[0])), int(_number(arguments[1]))
    if high <= low:
        raise ValueError("the upper bound must exceed the lower")
    return low + fnv1_64(f"{now.astimezone(UTC).isoformat()}:{arguments}") % (high - low)


def _merge(arguments: list[Any], now: datetime) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for argument in arguments:
        merged |= _mapping(argument)
    return merged


def _pure(count: int | tuple[int, int], run: Callable[..., Any], description: str) -> Function:
    bounds = (count, count) if isinstance(count, int) else count
    return Function(bounds, lambda arguments, _now: run(*arguments), description)


FUNCTIONS: dict[str, Function] = {
    "AsBool": _pure(1, _bool, "true for 1, true, yes, t, y, on"),
    "AsCollection": _pure(1, _list, "a JSON text as list"),
    "AsData": _pure(1, _data, "a JSON text as data"),
    "AsFloat": _pure(1, lambda value: float(_number(value)), "a number with fraction"),
    "AsInt": _pure(1, lambda value: int(_number(value)), "a whole number, fraction cut off"),
    "AsJSON": _pure(1, lambda value: json.dumps(value, default=render), "data as JSON text"),
    "AsMap": _pure(1, lambda value: dict(_mapping(value)), "a JSON text as mapping"),
    "AsNumber": _pure(1, _number, "a whole number, or one with fraction"),
    "AsString": _pure(1, render, "any value as text"),
    "Base64Decode": _pure(1, _decode64, "text of a base64 text"),
    "Base64DecodeText": _pure(1, _decode64, "text of a base64 text"),
    "Base64Encode": _pure(1, lambda value: base64.b64encode(render(value).encode()).decode(), "base64 of a text"),
    "Concat": _pure((1, 20), lambda *values: "".join(map(render, values)), "all arguments joined"),
    "Count": _pure(1, _length, "number of elements"),
    "Elapsed": Function((1, 1), _elapsed, "from the given time to the file's: `5h7s`"),
    "FormatTime": Function((2, 4), _format_time, "time, Java format, optional zone, optional truncation format"),
    "IndexOf": _pure(2, _index_of, "position of the second in the first, or -1"),
    "Join": _pure(2, lambda items, by: render(by).join(map(render, _list(items))), "a list joined by a separator"),
    "Keys": _pure(1, lambda value: list(_mapping(value)), "keys of a mapping"),
    "Len": _pure(1, _length, "length of a text, list or mapping"),
    "Length": _pure(1, _length, "length of a text, list or mapping"),
    "Merge": Function((1, 20), _merge, "mappings merged, later ones win"),
    "QueryEscape": _pure(1, lambda value: quote_plus(render(value)), "URL-escaped"),
    "QueryUnescape": _pure(1, lambda value: unquote_plus(render(value)), "URL-unescaped"),
    "Rand": Function((2, 2), _rand, "a number from the first up to the second, fixed for a file's time"),
    "Replace": _pure(3, lambda text, old, new: render(text).replace(render(old), render(new)), "text, old, new"),
    "Split": _pure(2, lambda text, by: render(text).split(render(by)) if render(by) else list(render(text)), "a list"),
    "Sum": _pure(1, lambda items: sum(map(_number, _list(items))), "sum of a list"),
    "ToLower": _pure(1, lambda value: render(value).lower(), "lower case"),
    "ToUpper": _pure(1, lambda value: render(value).upper(), "upper case"),
    "TrimSpace": _pure(1, lambda value: render(value).strip(), "without spaces around"),
    "Values": _pure(1, lambda value: list(_mapping(value).values()), "values of a mapping"),
}


def references_of(template: Template) -> list[tuple[str, Reference]]:
    """Every reference in the expression with the text it stands in, for checks at load."""
    found: list[tuple[str, Reference]] = []
    for part in template.parts:
        if isinstance(part, str):
            found += [(part, reference) for reference in find_references(part)]
        else:
            for argument in part.arguments:
                found += references_of(argument)
    return found
