"""Which rule takes a file.

`RuleIndex` answers without looking at every rule: prefixes and suffixes are found by bisection, and many patterns that
share a prefix and suffix are tried together as one RE2 set. Invariant: it answers exactly what asking every rule in
turn would.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ingestd.rules.fields import PatternSet
from ingestd.rules.rule import Rule

# Up to this many suffixes, trying each is as fast as bisection.
_SUFFIXES_BY_TRIAL = 4
_FEW_RULES = 3


@dataclass(frozen=True, slots=True)
class Match:
    """One enabled rule takes the file."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class NoMatch:
    """No rule is meant for the file."""


@dataclass(frozen=True, slots=True)
class Disabled:
    """Only switched-off rules take the file; this is the first of them."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several enabled rules claim the file: an error that names them all."""

    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        return "several rules match: " + ", ".join(f"{rule.name} ({rule.url})" for rule in self.rules)


Routing = Match | NoMatch | Disabled | Ambiguous
_NO_MATCH = NoMatch()


def path_of(object_name: str) -> str:
    """What rules match: the object's name with one leading slash and no double ones."""
    path = f"/{object_name}"
    while "//" in path:
        path = path.replace("//", "/")
    return path


def decide(rules: Sequence[Rule]) -> Routing:
    """What to do with a file that these rules claim, in the order of their files."""
    if not rules:
        return _NO_MATCH
    if len(rules) == 1:
        return Disabled(rules[0]) if rules[0].matcher.disabled else Match(rules[0])
    enabled = [rule for rule in rules if not rule.matcher.disabled]
    if len(enabled) == 1:
        return Match(enabled[0])
    if enabled:
        return Ambiguous(tuple(sorted(enabled, key=_order)))
    return Disabled(min(rules, key=_order))


def _order(rule: Rule) -> tuple[str, int]:
    return rule.url, rule.index


class RuleIndex:
    """All rules, arranged by prefix, then suffix, then pattern."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        by_prefix: dict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            if not rule.matcher.never:
                by_prefix[rule.matcher.prefix].append(rule)
        self._prefixes = _Chains(by_prefix)
        self._cells = [_cell(by_prefix[prefix]) for prefix in self._prefixes.keys]

    def route(self, object_name: str) -> Routing:
        """Decide for an object by its name."""
        return self.find(path_of(object_name))

    def find(self, path: str) -> Routing:
        """Decide for a path (see `path_of`)."""
        found: list[Rule] = []
        cells = self._cells
        at = self._prefixes.longest(path)
        parents = self._prefixes.parents
        while at >= 0:
            cells[at].collect(path, found)
            at = parents[at]
        return decide(found)


class _Chains:
    """Distinct strings, sorted; each knows the longest other one it starts with.

    All strings that a text starts with lie on one chain of parents, which bisection finds: whatever sorts between such
    a string and the text starts with it too.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self.keys = sorted(strings)
        self.parents: list[int] = []
        open_chain: list[int] = []
        for index, key in enumerate(self.keys):
            while open_chain and not key.startswith(self.keys[open_chain[-1]]):
                open_chain.pop()
            self.parents.append(open_chain[-1] if open_chain else -1)
            open_chain.append(index)

    def longest(self, text: str) -> int:
        """Index of the longest key that `text` starts with, or -1."""
        keys, parents = self.keys, self.parents
        at = bisect_right(keys, text) - 1
        while at >= 0 and not text.startswith(keys[at]):
            at = parents[at]
        return at


def _cell(rules: list[Rule]) -> "_Few | _BySuffix":
    return _Few(rules) if len(rules) <= _FEW_RULES else _BySuffix(rules)


class _Few:
    """The few rules that share a prefix, tried one by one. Most prefixes have one rule, and memory is what costs."""

    __slots__ = ("_rules",)

    def __init__(self, rules: list[Rule]) -> None:
        self._rules = tuple(
            (rule.matcher.suffix, not (rule.matcher.pattern or rule.matcher.exclusion), rule) for rule in rules
        )

    def collect(self, path: str, found: list[Rule]) -> None:
        for suffix, plain, rule in self._rules:
            if path.endswith(suffix) and (plain or rule.matcher.accepts(path)):
                found.append(rule)


class _BySuffix:
    """Rules that share a prefix."""

    __slots__ = ("_chains", "_few", "_many")

    def __init__(self, rules: list[Rule]) -> None:
        by_suffix: dict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            by_suffix[rule.matcher.suffix].append(rule)
        self._few: list[tuple[str, _ByPattern]] = []
        self._chains: _Chains | None = None
        self._many: list[_ByPattern] = []
        if len(by_suffix) <= _SUFFIXES_BY_TRIAL:
            self._few = [(suffix, _ByPattern(group)) for suffix, group in by_suffix.items()]
        else:
            self._chains = _Chains(suffix[::-1] for suffix in by_suffix)
            self._many = [_ByPattern(by_suffix[key[::-1]]) for key in self._chains.keys]

    def collect(self, path: str, found: list[Rule]) -> None:
        for suffix, cell in self._few:
            if path.endswith(suffix):
                cell.collect(path, found)
        if self._chains is not None:
            at = self._chains.longest(path[::-1])
            while at >= 0:
                self._many[at].collect(path, found)
                at = self._chains.parents[at]


class _ByPattern:
    """Rules that share prefix and suffix, with or without a pattern."""

    __slots__ = ("_patterns", "_plain", "_with_pattern")

    def __init__(self, rules: list[Rule]) -> None:
        self._plain = [rule for rule in rules if not rule.matcher.pattern]
        self._with_pattern = [rule for rule in rules if rule.matcher.pattern]
        patterns = [rule.matcher.pattern for rule in self._with_pattern]
        self._patterns = PatternSet(patterns) if patterns else None

    def collect(self, path: str, found: list[Rule]) -> None:
        for rule in self._plain:
            if not (rule.matcher.exclusion and rule.matcher.excludes(path)):
                found.append(rule)  # noqa: PERF401 - almost always one rule
        if self._patterns is not None:
            fitting = [self._with_pattern[hit] for hit in self._patterns.search(path)]
            found.extend([rule for rule in fitting if not rule.matcher.excludes(path)])
