"""Types of rule fields that check what they hold: patterns, table names, SQL with variables, choices in any case."""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from ingestd.model.tables import InvalidTableName, parse_table
from ingestd.rules.functions import ExpressionError, parse_expression
from ingestd.rules.references import find_references

# What one automaton may grow to; RE2's own default of 8 MiB holds about a hundred patterns.
_SET_MEMORY = 256 << 20
_PATTERN_MEMORY = 64 << 10


@lru_cache(maxsize=50_000)
def compile_pattern(pattern: str) -> Any:
    """An RE2 pattern; raises ValueError with RE2's own reason. Quiet: RE2 would also write to standard error."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        raise ValueError(f"{pattern!r} is no RE2 pattern: {reason}") from None


class PatternSet:
    """Patterns searched for together, in one pass over the text.

    Also for a single pattern: RE2's Python face builds a match object with every search, and most callers only ask
    whether there is one.
    """

    __slots__ = ("_patterns", "_set")

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._set: Any = None
        options = re2.Options()
        options.log_errors = False
        options.max_mem = min(_SET_MEMORY, _PATTERN_MEMORY * (len(patterns) + 128))
        together = re2.Set.SearchSet(options)
        for pattern in (*self._patterns, ""):
            together.Add(pattern)
        try:
            together.Compile()
        except re2.error:  # too large together: searched one by one
            return
        self._set = together

    def search(self, text: str) -> list[int]:
        """Which of the patterns match, in no particular order."""
        if self._set is not None:
            hits: list[int] = self._set.Match(text.encode("utf-8", "surrogatepass")) or []
            # The last member matches every text. Its absence means the automaton ran out of memory, which RE2 reports
            # only by an empty answer: then every pattern is tried.
            everything = len(self._patterns)
            if everything in hits:
                return [hit for hit in hits if hit != everything]
        return [at for at, pattern in enumerate(self._patterns) if compile_pattern(pattern).search(text)]


@lru_cache(maxsize=50_000)
def pattern_set(*patterns: str) -> PatternSet:
    """A shared set: rules often repeat the same exclusion."""
    return PatternSet(patterns)


def _check_pattern(pattern: str) -> str:
    if pattern:
        compile_pattern(pattern)
    return pattern


def _check_table(text: str) -> str:
    """A table name whose fixed parts are right; what variables bring is checked when they are filled in."""
    filled, last = [], 0
    for reference in find_references(text):
        if reference.group and len(reference.group) > 3:
            continue
        filled += [text[last : reference.start], "v"]
        last = reference.end
    try:
        parse_table("".join([*filled, text[last:]]))
    except InvalidTableName as error:
        if not (last and "names no dataset" in str(error)):
            raise ValueError(str(error)) from None
    return text


def _check_expression(text: str) -> str:
    try:
        parse_expression(text)
    except ExpressionError as error:
        raise ValueError(str(error)) from None
    return text


Pattern = Annotated[str, AfterValidator(_check_pattern)]
TableText = Annotated[str, AfterValidator(_check_table)]
Expression = Annotated[str, AfterValidator(_check_expression)]
Int64 = Annotated[int, PlainSerializer(str, when_used="json")]
"""A whole number that Google's JSON carries as text."""


class Choice(StrEnum):
    """A choice written in any case."""

    @classmethod
    def _missing_(cls, value: object) -> "Choice | None":
        if not isinstance(value, str):
            return None
        return next((member for member in cls if member.value.lower() == value.lower()), None)


def _folded(value: Any) -> Any:
    """`Quarantine_Rows` and `quarantine rows` are one choice."""
    return " ".join(value.lower().split()) if isinstance(value, str) else value


AnyCase = BeforeValidator(_folded)
"""For a choice of `ingestd.model`, whose values are lower case."""


def _nanoseconds(value: Any) -> Any:
    """bqtail writes a window's duration as a number of nanoseconds; everyone else with a unit."""
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return f"{value / 1000}us" if isinstance(value, int) and not isinstance(value, bool) else value


NanosecondsOr = BeforeValidator(_nanoseconds)
