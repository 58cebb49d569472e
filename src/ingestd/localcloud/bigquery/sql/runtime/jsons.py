"""JSON functions. JSON values are kept as BigQuery prints them: compact, members sorted by name.

JSON text in a STRING keeps its order and the spelling of its numbers; malformed text answers NULL, as documented.
"""

import json
import re
from functools import lru_cache
from typing import Any

from ingestd.localcloud.bigquery.sql.runtime.registry import runtime

_STEP = re.compile(
    r"""\.\s*(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_][A-Za-z0-9_-]*|[^.\[\]"'\s*]+))|\[\s*(?:(\d+)|'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*\]"""
)
_MISSING = object()


class RawNumber(str):
    """A number as it was written."""

    __slots__ = ()


@lru_cache(maxsize=1024)
def path(text: str) -> tuple[str | int, ...]:
    """The steps of a JSONPath: member names and array positions."""
    if not text.startswith("$"):
        if text.startswith(("lax ", "LAX ")):
            raise ValueError(f"the local BigQuery does not support lax JSONPath: {text}")
        raise ValueError(f"Invalid JSONPath: {text}; JSONPath must start with '$'")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(f"Invalid token in JSONPath at: {text[at:]}")
        name = next((match[index] for index in (1, 2, 4, 5) if match[index] is not None), None)
        steps.append(int(match[3]) if name is None else re.sub(r"\\(.)", r"\1", name))
        at = match.end()
    return tuple(steps)


def _walk(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, _MISSING)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return _MISSING
        if value is _MISSING:
            return _MISSING
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"invalid literal {name}")


def _first(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that is there twice, the first counts."""
    found: dict[str, Any] = {}
    for name, value in members:
        found.setdefault(name, value)
    return found


_raw_decoder = json.JSONDecoder(
    object_pairs_hook=_first, parse_float=RawNumber, parse_int=RawNumber, parse_constant=_no_constant
)


def _int(text: str) -> int | float:
    value = int(text)
    return value if -(2**63) <= value < 2**64 else float(text)


_decoder = json.JSONDecoder(object_pairs_hook=_first, parse_int=_int, parse_constant=_no_constant)


def _load_text(text: str) -> Any:
    try:
        return _raw_decoder.decode(text)
    except ValueError:
        return _MISSING


def dump(value: Any) -> str:
    if isinstance(value, RawNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(key)}:{dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def load(text: str) -> Any:
    return _decoder.decode(text)


def normalise(text: str) -> str:
    try:
        return canonical(load(text))
    except ValueError as error:
        raise ValueError(f"Invalid input to PARSE_JSON: syntax error while parsing value - {error}") from None


@runtime("bq_parse_json", "VARCHAR VARCHAR", "VARCHAR")
def parse_json(text: str, mode: str) -> str:
    if mode == "exact":
        for number in re.findall(r"(?<![\w.\"])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w\"])", _without_strings(text)):
            if not _fits(number):
                raise ValueError(
                    f"Invalid input to PARSE_JSON: Input number: {number} cannot round-trip through string "
                    "representation"
                )
    return normalise(text)


def _without_strings(text: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)


def _fits(number: str) -> bool:
    if re.fullmatch(r"-?\d+", number):
        return -(2**63) <= int(number) < 2**64
    digits = len(re.sub(r"[eE].*|[-.]", "", number).strip("0"))
    return digits <= 17


@runtime("bq_json_query_text", "VARCHAR VARCHAR", "VARCHAR")
def query_text(text: str, where: str) -> str | None:
    found = _walk(_load_text(text), path(where))
    return None if found is _MISSING or found is None else dump(found)


@runtime("bq_json_value_text", "VARCHAR VARCHAR", "VARCHAR")
def value_text(text: str, where: str) -> str | None:
    return _scalar(_walk(_load_text(text), path(where)))


def _scalar(found: Any) -> str | None:
    if found is _MISSING or found is None or isinstance(found, dict | list):
        return None
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str) else json.dumps(found)


@runtime("bq_json_query_array_text", "VARCHAR VARCHAR", "VARCHAR[]")
def query_array_text(text: str, where: str) -> list[str] | None:
    found = _walk(_load_text(text), path(where))
    return [dump(item) for item in found] if isinstance(found, list) else None


@runtime("bq_json_value_array_text", "VARCHAR VARCHAR", "VARCHAR[]")
def value_array_text(text: str, where: str) -> list[str | None] | None:
    found = _walk(_load_text(text), path(where))
    if not isinstance(found, list) or any(isinstance(item, dict | list) for item in found):
        return None
    return [_scalar(item) for item in found]


@runtime("bq_json_query", "VARCHAR VARCHAR", "VARCHAR")
def query(text: str, where: str) -> str | None:
    found = _walk(load(text), path(where))
    return None if found is _MISSING else canonical(found)


@runtime("bq_json_member", "VARCHAR VARCHAR", "VARCHAR")
def member(text: str, name: str) -> str | None:
    value = load(text)
    return canonical(value[name]) if isinstance(value, dict) and name in value else None


@runtime("bq_json_item", "VARCHAR BIGINT", "VARCHAR")
def item(text: str, index: int) -> str | None:
    value = load(text)
    return canonical(value[index]) if isinstance(value, list) and 0 <= index < len(value) else None


@runtime("bq_json_type", "VARCHAR", "VARCHAR")
def json_type(text: str) -> str:
    value = load(text)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def _fail(kind: str, text: str) -> ValueError:
    return ValueError(f"The provided JSON input is not {kind}: {text}")


@runtime("bq_json_to_bool", "VARCHAR", "BOOLEAN")
def to_bool(text: str) -> bool:
    value = load(text)
    if not isinstance(value, bool):
        raise _fail("a boolean", text)
    return value


@runtime("bq_json_to_int64", "VARCHAR", "BIGINT")
def to_int64(text: str) -> int:
    value = load(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise _fail("an integer", text)
    return int(value)


@runtime("bq_json_to_float64", "VARCHAR", "DOUBLE")
def to_float64(text: str) -> float:
    value = load(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _fail("a number", text)
    return float(value)


@runtime("bq_json_to_string", "VARCHAR", "VARCHAR")
def to_string(text: str) -> str:
    value = load(text)
    if not isinstance(value, str):
        raise _fail("a string", text)
    return value


@runtime("bq_lax_bool", "VARCHAR", "BOOLEAN")
def lax_bool(text: str) -> bool | None:
    value = load(text)
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return bool(value) if isinstance(value, bool | int | float) else None


@runtime("bq_lax_int64", "VARCHAR", "BIGINT")
def lax_int64(text: str) -> int | None:
    number = lax_float64(text)
    value = load(text)
    if isinstance(value, int):
        return int(value)
    return round(number) if number is not None and abs(number) < 2**63 else None


@runtime("bq_lax_float64", "VARCHAR", "DOUBLE")
def lax_float64(text: str) -> float | None:
    value = load(text)
    try:
        return float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except ValueError:
        return None


@runtime("bq_lax_string", "VARCHAR", "VARCHAR")
def lax_string(text: str) -> str | None:
    return _scalar(load(text))


@runtime("bq_json_keys", "VARCHAR BIGINT", "VARCHAR[]")
def keys(text: str, depth: int) -> list[str]:
    found: set[str] = set()

    def collect(value: Any, prefix: str, level: int) -> None:
        if isinstance(value, dict) and level < depth:
            for key, inner in value.items():
                name = key if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) else _quote(key)
                found.add(prefix + name)
                collect(inner, f"{prefix}{name}.", level + 1)

    collect(load(text), "", 0)
    return sorted(found)


@runtime("bq_json_strip_nulls", "VARCHAR", "VARCHAR")
def strip_nulls(text: str) -> str:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if inner is not None}
        return [strip(inner) for inner in value if inner is not None] if isinstance(value, list) else value

    return canonical(strip(load(text)))


@runtime("bq_json_set", "VARCHAR VARCHAR VARCHAR", "VARCHAR", nulls=True)
def set_value(text: str | None, where: str | None, value: str | None) -> str | None:
    if text is None or where is None:
        return text
    root, steps = load(text), path(where)
    new = None if value is None else load(value)
    if not steps:
        return canonical(new)
    return canonical(_assign(root, steps, new))


def _assign(value: Any, steps: tuple[str | int, ...], new: Any) -> Any:
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if value is None:
            value = {}
        if not isinstance(value, dict):
            return value
        return value | {step: _assign(value.get(step), rest, new)}
    if value is None:
        value = []
    if not isinstance(value, list):
        return value
    padded = value + [None] * (step + 1 - len(value))
    padded[step] = _assign(padded[step], rest, new)
    return padded


@runtime("bq_json_remove", "VARCHAR VARCHAR", "VARCHAR")
def remove(text: str, where: str) -> str:
    root, steps = load(text), path(where)
    if not steps:
        raise ValueError("The JSONPath cannot be '$'")
    parent = _walk(root, steps[:-1])
    last = steps[-1]
    if isinstance(parent, dict) and isinstance(last, str):
        parent.pop(last, None)
    elif isinstance(parent, list) and isinstance(last, int) and last < len(parent):
        parent.pop(last)
    return canonical(root)


@runtime("bq_json_array_append", "VARCHAR VARCHAR VARCHAR", "VARCHAR")
def array_append(text: str, where: str, value: str) -> str:
    root, steps = load(text), path(where)
    target = _walk(root, steps)
    if isinstance(target, list):
        target.append(load(value))
    elif target is None:
        return canonical(_assign(root, steps, [load(value)]))
    return canonical(root)


@runtime("bq_json_canonical", "VARCHAR", "VARCHAR")
def canonical_text(text: str) -> str:
    """JSON built by SQL, put in the order JSON values have."""
    return canonical(load(text))
