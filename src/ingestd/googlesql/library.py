"""What an engine has of GoogleSQL's functions: for each something that writes its calls, or templates of its SQL.

`FUNCTIONS` says what there is; what of it is not in an engine's library, that engine lacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from ingestd.googlesql import ast
from ingestd.googlesql.coercion import Conversions
from ingestd.googlesql.functions import FUNCTIONS, Signature, overload, types
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import DATE, DATETIME, INT64, SCALARS, TIMESTAMP, SqlType, array_of
from ingestd.googlesql.values import Value

NEVER_FAILS = "never fails"  # SAFE.f is f

if TYPE_CHECKING:
    from ingestd.googlesql.analyze import Analyzer

_Compiler = TypeVar("_Compiler", bound="Analyzer")
_Handler = TypeVar("_Handler")


@dataclass(frozen=True, slots=True)
class Call(Generic[_Compiler]):
    """One call, with its arguments as they are written."""

    compiler: _Compiler
    node: ast.Call
    scope: Scope

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def nodes(self) -> tuple[ast.Expression, ...]:
        return self.node.args

    @property
    def safe(self) -> bool:
        return self.node.safe

    def values(self) -> list[Value]:
        return [self.compiler.expr(item, self.scope) for item in self.nodes]

    def value(self, index: int) -> Value:
        return self.compiler.expr(self.nodes[index], self.scope)

    def typed(self, index: int, kind: SqlType) -> Value:
        return self.want(self.value(index), kind)

    def want(self, value: Value, kind: SqlType) -> Value:
        """An argument converted to the type the function takes."""
        converted = self.compiler.conversions.coerce(value, kind)
        if converted is None:
            raise self.mismatch([value])
        return converted

    def array(self, value: Value) -> tuple[Value, SqlType]:
        """An argument that has to be an ARRAY, and the type of its elements."""
        if value.null:
            value = self.compiler.conversions.cast(value, array_of(INT64))
        if value.type.kind != "ARRAY" or value.type.element is None:
            raise self.mismatch([value])
        return value, value.type.element

    def temporal(self, value: Value, family: str) -> Value:
        """The argument of a family's function: of a literal the family's type, of other temporal ones their own."""
        if value.type in (DATE, DATETIME, TIMESTAMP) and family != "TIME":
            return value
        return self.want(value, SCALARS[family])

    def common(self, values: Sequence[Value]) -> tuple[SqlType, list[Value]]:
        return self.compiler.common(values, self.compiler.words["function"].format(name=self.name), self.node)

    def named(self, name: str) -> ast.Expression | None:
        return next((value for key, value in self.node.named if key == name), None)

    def mismatch(self, values: Sequence[Value], supported: str = "") -> Exception:
        """Arguments that the function does not take."""
        kinds = ", ".join("NULL" if value.null else str(value.type) for value in values) or "no arguments"
        known = supported or FUNCTIONS[self.name].described
        signatures = f". Supported signature{'s' if ';' in known else ''}: {known}" if known else ""
        return self.compiler.wrong("no signature", self.node, name=self.name, kinds=kinds, signatures=signatures)

    def fail(self, message: str, node: ast.Node | None = None) -> NoReturn:
        raise self.compiler.mistake(message, node or self.node)


@dataclass(frozen=True, slots=True)
class Entry(Generic[_Handler]):
    handler: _Handler
    safe: bool  # whether SAFE.f is available


class Library(dict[str, Entry[_Handler]], Generic[_Handler]):
    """By name; `simple` is the handler of functions that are templates alone."""

    def __init__(self, simple: _Handler) -> None:
        super().__init__()
        self._simple = simple
        self._templates: dict[tuple[str, tuple[SqlType, ...]], tuple[str, str]] = {}  # of f and of SAFE.f

    def function(self, *names: str, safe: bool = False) -> Callable[[_Handler], _Handler]:
        def register(handler: _Handler) -> _Handler:
            self.update((name, Entry(handler, safe)) for name in names)
            return handler

        return register

    def define(self, names: str, parameters: str, template: str, *, safe: str = "") -> None:
        """An overload that is one template. `safe` is that of `SAFE.f`, or NEVER_FAILS; without it there is none."""
        kinds = types(parameters)
        for name in names.split():
            assert any(one.parameters == kinds for one in FUNCTIONS[name].signatures), (name, parameters)
            self._templates[name, kinds] = template, template if safe == NEVER_FAILS else safe
            self[name] = Entry(self._simple, bool(safe) and (name not in self or self[name].safe))

    def overload(
        self, name: str, args: Sequence[Value], conversions: Conversions, *, safe: bool = False
    ) -> tuple[str, Signature, list[Value]] | None:
        """The template of what the arguments choose; another that GoogleSQL has must not be taken instead of it."""
        found = overload(
            FUNCTIONS[name], args, conversions.coerce, lambda one: (name, one.parameters) in self._templates
        )
        template = self._templates.get((name, found[0].parameters), ("", ""))[safe] if found is not None else ""
        return (template, *found) if found is not None and template else None

    def near(self, name: str) -> str:
        """The function that somebody may have meant, or nothing."""
        return next(iter(get_close_matches(name, self, n=1, cutoff=0.8)), "")
