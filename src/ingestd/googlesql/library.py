"""What an engine has of GoogleSQL's functions: for each something that writes its calls, or templates of its SQL.

`FUNCTIONS` says what there is; what of it is not in an engine's library, that engine lacks. Where it also says the
types of a call, the engine gets the arguments converted, writes text, and has no say in the type of the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, TypeVar

from ingestd.googlesql import ast
from ingestd.googlesql.functions import FUNCTIONS, Chosen, Signature, overload
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import BYTES, DATE, DATETIME, INT64, SCALARS, STRING, TIMESTAMP, SqlType, array_of
from ingestd.googlesql.values import Value

NEVER_FAILS = "never fails"  # SAFE.f is f

if TYPE_CHECKING:
    from ingestd.googlesql.analyze import Analyzer

_Compiler = TypeVar("_Compiler", bound="Analyzer")
_Call = TypeVar("_Call", bound="Call[Any]")


@dataclass(frozen=True, slots=True)
class Call(Generic[_Compiler]):
    """One call, with its arguments as they are written."""

    compiler: _Compiler
    node: ast.Call
    scope: Scope
    chosen: Chosen | None = None  # where the table says its types

    @property
    def returns(self) -> SqlType:
        """The type of the result, as the table says it."""
        assert self.chosen is not None
        return self.chosen.returns

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

    def texts(self) -> list[Value]:
        """Arguments that are all BYTES, or become texts as by a CAST."""
        values = self.values()
        if any(value.type is BYTES and not value.null for value in values):
            return [self.want(value, BYTES) for value in values]
        if any(value.type.kind in ("ARRAY", "STRUCT", "JSON", "GEOGRAPHY") for value in values):
            raise self.mismatch(values)
        return [value if value.type is STRING else self.compiler.conversions.cast(value, STRING) for value in values]

    def common(self, values: Sequence[Value]) -> tuple[SqlType, list[Value]]:
        return self.compiler.common(values, self._what, self.node)

    @property
    def _what(self) -> str:
        return self.compiler.words["function"].format(name=self.name)

    def choose(self, available: Callable[[Signature], bool]) -> Chosen:
        """The overload that the arguments choose; one that is not available is not replaced by another."""
        function, args = FUNCTIONS[self.name], self.values()
        found = overload(function, args, self.compiler.conversions, available)
        if found is not None and available(found.signature):
            return found
        for signature in function.signatures:
            shared = signature.shared(args)
            if self.compiler.conversions.supertype(shared) is None:
                raise self.compiler.no_common(self._what, shared, self.node)
        raise self.mismatch(args)

    def named(self, name: str) -> ast.Expression | None:
        return next((value for key, value in self.node.named if key == name), None)

    def mismatch(self, values: Sequence[Value], supported: str = "") -> Exception:
        """Arguments that the function does not take."""
        kinds = ", ".join("NULL" if value.null else str(value.type) for value in values) or "no arguments"
        function = FUNCTIONS[self.name]
        known = supported or function.described
        signatures = f". Supported signature{'s' if ';' in known else ''}: {known}" if known else ""
        own = f"no signature of {self.name}"
        key = own if own in self.compiler.words and function.takes(len(values)) else "no signature"
        return self.compiler.wrong(
            key, self.node, name=self.name, kinds=kinds, first=kinds.partition(", ")[0], signatures=signatures
        )

    def fail(self, message: str, node: ast.Node | None = None) -> NoReturn:
        raise self.compiler.mistake(message, node or self.node)


@dataclass(frozen=True, slots=True)
class Entry(Generic[_Call]):
    handler: Callable[[_Call], Value]
    safe: bool  # whether SAFE.f is available


class Library(dict[str, Entry[_Call]], Generic[_Call]):
    """By name; `fill` puts arguments into a template."""

    def __init__(self, fill: Callable[[str, Sequence[Value]], str]) -> None:
        super().__init__()
        self._fill = fill
        self._writers: dict[tuple[str, Signature], Callable[Concatenate[_Call, ...], str]] = {}

    def function(
        self, *names: str, safe: bool = False
    ) -> Callable[[Callable[[_Call], Value]], Callable[[_Call], Value]]:
        """What the table has no types of: the handler sees to them."""
        assert not any(FUNCTIONS[name].signatures for name in names), names

        def register(handler: Callable[[_Call], Value]) -> Callable[[_Call], Value]:
            self.update((name, Entry(handler, safe)) for name in names)
            return handler

        return register

    def writes(
        self, names: str, *overloads: str, safe: bool = False
    ) -> Callable[[Callable[Concatenate[_Call, ...], str]], Callable[Concatenate[_Call, ...], str]]:
        """What writes the SQL of these overloads, or of all that there are, of converted arguments."""

        def register(writer: Callable[Concatenate[_Call, ...], str]) -> Callable[Concatenate[_Call, ...], str]:
            for name in names.split():
                function = FUNCTIONS[name]
                chosen = [one for text in overloads for one in function.overloads(text)] or function.signatures
                assert chosen, name
                self._writers.update(((name, one), writer) for one in chosen)
                self[name] = Entry(self._typed, safe and (name not in self or self[name].safe))
            return writer

        return register

    def define(self, names: str, parameters: str, template: str, *, safe: str = "") -> None:
        """An overload that is one template. `safe` is that of `SAFE.f`, or NEVER_FAILS; without it there is none."""
        on_error = template if safe == NEVER_FAILS else safe

        def write(call: _Call, *args: Value) -> str:
            return self._fill(on_error if call.safe else template, args)

        self.writes(names, parameters, safe=bool(safe))(write)

    def _typed(self, call: _Call) -> Value:
        chosen = call.choose(lambda one: (call.name, one) in self._writers)
        writer = self._writers[call.name, chosen.signature]
        return Value(writer(replace(call, chosen=chosen), *chosen.args), chosen.returns)

    def near(self, name: str) -> str:
        """The function that somebody may have meant, or nothing."""
        return next(iter(get_close_matches(name, self, n=1, cutoff=0.8)), "")
