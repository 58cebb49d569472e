"""The one variable expander.

Never raises on any text: what it does not know stays as written (and lint reports it), so a later stage may still fill
it in. A string that is nothing but one variable becomes that variable's own value (list, number, mapping); inside
longer text every value is rendered as text.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ingestd.rules.references import Reference, find_references, group_index

_FNV_OFFSET, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def fnv1_64(text: str) -> int:
    """FNV-1 (multiply, then xor) of UTF-8 bytes as a signed 64-bit integer's absolute value: bqtail's hash."""
    value = _FNV_OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value * _FNV_PRIME & _MASK) ^ byte
    return abs(value - (1 << 64) if value >> 63 else value)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value of a reference, and where the text it used up ends."""

    value: object
    end: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What variables stand for in one place."""

    values: Mapping[str, Any] = field(default_factory=dict)
    groups: Sequence[str] = ()
    source_url: str | None = None
    """What `$Mod(n)` hashes; without it `$Mod(n)` stays."""
    prefixes: tuple[str, ...] = ()
    """Names that are also found at the start of a longer name: bqtail reads `t_$Date_raw` as `$Date` and `_raw`."""
    home: str = ""
    """The project that SQL names for tables without one; empty: none is named."""

    def resolve(self, text: str, reference: Reference) -> Resolved | None:
        """The value of a reference found in `text`, or None when it is unknown here."""
        if reference.modulus:
            modulus = int(reference.modulus[:18])
            if self.source_url is None or not modulus:
                return None
            return Resolved(fnv1_64(self.source_url) % modulus, reference.end)
        if reference.group:
            if not (found := group_index(reference.group, len(self.groups), braced=reference.braced)):
                return None
            end = reference.end if reference.braced else reference.start + 1 + found[1]
            return Resolved(self.groups[found[0] - 1], end)
        return self._named(reference)

    def _named(self, reference: Reference) -> Resolved | None:
        if reference.name in self.values:
            value, end = self.values[reference.name], reference.name_end
            for step in reference.steps:
                inner = _step(value, step.key)
                if inner is None and isinstance(value, (Mapping, list, tuple)):
                    return None
                if inner is None:  # `$EventID.json`: what follows a plain value is text
                    break
                value, end = inner.value, step.end
            else:
                return Resolved(value, reference.end)
            return None if reference.braced else Resolved(value, end)
        if reference.braced:
            return None
        for name in self.prefixes:
            if reference.name.startswith(name) and name in self.values:
                return Resolved(self.values[name], reference.start + 1 + len(name))
        return None

    def expand(self, value: Any) -> Any:
        """`value` with every known variable replaced: texts, lists and mappings (keys too), any depth."""
        if isinstance(value, str):
            return self.expand_text(value)
        if isinstance(value, Mapping):
            return {self._key(key): self.expand(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return self._list(value)
        return value

    def expand_text(self, text: str) -> Any:
        """A text's expansion: the native value when the text is one variable, else text."""
        if "$" not in text:
            return text
        parts: list[str] = []
        last = 0
        for reference in find_references(text):
            if reference.start < last:
                continue
            resolved = self.resolve(text, reference)
            if resolved is None:
                continue
            if not parts and not text[: reference.start].strip() and not text[resolved.end :].strip():
                return resolved.value
            parts += [text[last : reference.start], render(resolved.value)]
            last = resolved.end
        return "".join([*parts, text[last:]]) if parts else text

    def _key(self, key: Any) -> Any:
        return render(self.expand_text(key)) if isinstance(key, str) else key

    def _list(self, items: Iterable[Any]) -> list[Any]:
        """Each item expanded; a list that took the place of a text is spliced in (`URLs: [$LoadURIs]`)."""
        result: list[Any] = []
        for item in items:
            expanded = self.expand(item)
            if isinstance(item, str) and isinstance(expanded, (list, tuple)):
                result.extend(expanded)
            else:
                result.append(expanded)
        return result


def expand(value: Any, values: Mapping[str, Any]) -> Any:
    """`value` with every known variable replaced; see `Scope.expand`."""
    return Scope(values).expand(value)


def render(value: object) -> str:
    """A value as part of a longer text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value, default=render, ensure_ascii=False)
    return str(value)


def format_instant(instant: datetime) -> str:
    """RFC 3339 in UTC, fractions only where there are any."""
    text = instant.astimezone(UTC).isoformat()
    return text.replace("+00:00", "Z")


def unknown_variables(value: Any, known: Collection[str], *, groups: int = 0) -> list[str]:
    """Names used in `value` that no one will replace, in order of appearance, for lint."""
    found: dict[str, None] = {}
    for text in _texts(value):
        for reference in find_references(text):
            if reference.modulus or (reference.name and (reference.name in known or reference.name.startswith("__"))):
                continue
            if reference.group and (
                len(reference.group) > 3 or group_index(reference.group, groups, braced=reference.braced)
            ):
                continue
            found[reference.label] = None
    return list(found)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _step(value: object, key: str) -> Resolved | None:
    """`value.key` or `value[key]`, when there is such a thing."""
    if isinstance(value, Mapping) and key in value:
        return Resolved(value[key], 0)
    if isinstance(value, (list, tuple)) and key.isascii() and key.isdigit() and int(key[:9]) < len(value):
        return Resolved(value[int(key)], 0)
    return None
