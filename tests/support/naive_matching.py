"""The definition of matching, which the index of rules is held to and measured against."""

from collections.abc import Iterable

from ingestd.rules.matching import Routing, decide
from ingestd.rules.rule import Rule


def find_naively(rules: Iterable[Rule], path: str) -> Routing:
    """The definition of matching: ask every rule."""
    return decide([rule for rule in rules if rule.matcher.accepts(path)])
