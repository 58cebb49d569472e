"""Shorthands for tests of rules."""

import textwrap
from typing import Any

from ingestd.documents import DocumentError, read_documents, validate
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec


def spec(text: str, file: str = "r.yaml") -> RuleSpec:
    return validate(RuleSpec, read_documents(textwrap.dedent(text), file)[0], file)


def refused(text: str, file: str = "r.yaml") -> list[str]:
    """The problems of a rule that must not load."""
    try:
        loaded = spec(text, file)
    except DocumentError as error:
        return [str(problem) for problem in error.problems]
    raise AssertionError(f"loaded: {loaded}")


def rule(url: str = "r.yaml", index: int = 0, **fields: Any) -> Rule:
    """A rule from keyword arguments spelled as in files: `When=…, Dest=…`."""
    return Rule.of(RuleSpec.model_validate({"Dest": {"Table": "d.t"}, **fields}), url, index)
