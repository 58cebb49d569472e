"""The table of functions. A simple one is a template of Spark SQL per signature; the others have a handler."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import SCALARS, STRING, SqlType, array_of
from ingestd.googlesql.values import Value
from ingestd.prepare.values import coerce, fill

NEVER_FAILS = "never fails"  # SAFE.f is f


class Names(Protocol):
    """What names mean where a function is called."""

    def inside(self, values: Mapping[str, Value]) -> Any: ...


class Compiling(Protocol):
    def compile(self, node: ast.Expression, scope: Any) -> Value: ...

    def common(self, values: Sequence[Value], what: str) -> tuple[SqlType, list[Value]]: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call, with its arguments as they are written."""

    compiler: Compiling
    name: str
    nodes: tuple[ast.Expression, ...]
    scope: Any
    safe: bool = False

    def values(self, least: int, most: int | None = None) -> list[Value]:
        self.count(least, most)
        return [self.compiler.compile(node, self.scope) for node in self.nodes]

    def count(self, least: int, most: int | None = None) -> None:
        most = least if most is None else most
        if not least <= len(self.nodes) <= most:
            takes = str(least) if least == most else f"{least} to {most}"
            raise SqlError(f"{self.name} takes {takes} arguments, not {len(self.nodes)}")

    def value(self, index: int) -> Value:
        return self.compiler.compile(self.nodes[index], self.scope)

    def typed(self, index: int, kind: SqlType) -> Value:
        return self.want(self.value(index), kind)

    def want(self, value: Value, kind: SqlType) -> Value:
        converted = coerce(value, kind)
        if converted is None:
            raise self.mismatch([value])
        return converted

    def text(self, index: int) -> str:
        """An argument that has to be a constant text: a pattern, a format, a path."""
        value = self.value(index)
        if not isinstance(value.constant, str) or value.type is not STRING:
            raise SqlError(f"{self.name} needs a constant text there on Spark")
        return value.constant

    def mismatch(self, values: Sequence[Value]) -> SqlError:
        kinds = ", ".join("NULL" if value.null else str(value.type) for value in values)
        return SqlError(f"{self.name} does not take {kinds} on Spark")

    def word(self, index: int) -> str:
        """An argument that is a keyword, such as a date part."""
        node = self.nodes[index]
        return node.parts[0].upper() if isinstance(node, ast.Path) and len(node.parts) == 1 else ""


Handler = Callable[[Call], Value]


@dataclass(frozen=True, slots=True)
class Function:
    handler: Handler
    safe: bool  # whether SAFE.f is available


REGISTRY: dict[str, Function] = {}


def function(*names: str, safe: bool = False) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            REGISTRY[name] = Function(handler, safe)
        return handler

    return register


@dataclass(frozen=True, slots=True)
class Signature:
    parameters: tuple[SqlType, ...]
    returns: SqlType
    template: str
    safe: str


_SIGNATURES: dict[str, list[Signature]] = {}


def _kind(text: str) -> SqlType:
    return array_of(SCALARS[text[6:-1]]) if text.startswith("ARRAY<") else SCALARS[text]


def define(names: str, parameters: str, returns: str, template: str, *, safe: str = "") -> None:
    """A function that is one template, `@0` its first argument; several definitions are overloads.

    `safe` is the template of `SAFE.f`, or NEVER_FAILS; without it `SAFE.f` is not available.
    """
    kinds = tuple(map(_kind, parameters.split()))
    signature = Signature(kinds, _kind(returns), template, template if safe == NEVER_FAILS else safe)
    for name in names.split():
        _SIGNATURES.setdefault(name, []).append(signature)
        REGISTRY[name] = Function(_simple, all(item.safe for item in _SIGNATURES[name]))


def refuse(names: str, parameters: str) -> None:
    """An overload that GoogleSQL has and Spark has not: its arguments must not be taken for those of another."""
    kinds = tuple(map(_kind, parameters.split()))
    for name in names.split():
        _SIGNATURES[name].append(Signature(kinds, kinds[0], "", ""))


def _simple(call: Call) -> Value:
    sizes = [len(item.parameters) for item in _SIGNATURES[call.name]]
    call.count(min(sizes), max(sizes))
    args = [call.compiler.compile(node, call.scope) for node in call.nodes]
    return match(call, args)


def match(call: Call, args: Sequence[Value]) -> Value:
    """The overload whose types are the arguments' own, or the nearest they convert to."""
    candidates = [item for item in _SIGNATURES[call.name] if len(item.parameters) == len(args)]
    best: tuple[int, Signature, list[Value]] | None = None
    for signature in candidates:
        converted = [coerce(arg, kind) for arg, kind in zip(args, signature.parameters, strict=True)]
        found = [item for item in converted if item is not None]
        cost = sum(_distance(arg, kind) for arg, kind in zip(args, signature.parameters, strict=True))
        if len(found) == len(args) and (best is None or cost < best[0]):
            best = cost, signature, found
    if best is None:
        raise call.mismatch(args)
    template = best[1].safe if call.safe else best[1].template
    if not template:
        raise call.mismatch(args)
    return Value(fill(template, *best[2]), best[1].returns)


# How far a conversion goes: INT64 rather becomes FLOAT64, but NUMERIC stays exact while it can.
_STEPS = {("INT64", "FLOAT64"): 2, ("INT64", "NUMERIC"): 3, ("NUMERIC", "FLOAT64"): 9, ("FLOAT64", "NUMERIC"): 8}


def _distance(value: Value, kind: SqlType) -> int:
    if value.null or value.type == kind:
        return 0
    return 1 if value.literal and not value.type.numeric else _STEPS.get((value.type.kind, kind.kind), 20)
