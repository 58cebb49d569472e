"""The rule that a batch pins, so that an edit of its file never changes a batch under way; windows pin it alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import orjson

from ingestd.rules.names import place_in_file, place_key
from ingestd.rules.rule import Rule, pinned, stored_spec
from ingestd.rules.schema import RuleSpec, Transient
from ingestd.rules.secrets import is_sealed


@dataclass(frozen=True, slots=True)
class PinnedRule:
    document: dict[str, Any]  # the rule (or route) in full, but for its secrets
    url: str
    name: str  # stable across edits: the file and the place in it
    content_hash: str = ""

    @classmethod
    def of(cls, rule: Rule) -> Self:
        return cls(_document(rule), rule.url, rule.name, rule.content_hash)

    @property
    def keys(self) -> frozenset[str]:
        """What marks of files that it moved name it by."""
        return frozenset((self.name, place_key(self.name, self.url)))

    @property
    def workflow_name(self) -> str:
        """What it would be called if no other rule claimed its workflow's name; empty without a workflow."""
        workflow = (self.document.get("Info") or {}).get("Workflow")
        return workflow + place_in_file(self.name, self.url) if workflow else ""

    @property
    def spec(self) -> RuleSpec:
        return _parsed(orjson.dumps(self.document))

    @property
    def on_success(self) -> list[dict[str, Any]]:
        return self.document.get("OnSuccess") or []

    @property
    def on_failure(self) -> list[dict[str, Any]]:
        return self.document.get("OnFailure") or []

    @property
    def on_blocked(self) -> list[dict[str, Any]]:
        return self.document.get("OnBlocked") or []

    @property
    def transient(self) -> Transient | None:
        """The transient block, whichever way it was written."""
        dest = self.document.get("Dest") or {}
        if block := dest.get("Transient"):
            return Transient.model_validate(block)
        dataset = dest.get("TransientDataset")
        return Transient(dataset=dataset) if dataset else None

    @property
    def sealed(self) -> bool:
        """Whether a secret was left out of it."""
        return is_sealed(self.document)

    def to_json(self) -> dict[str, Any]:
        return {"RuleURL": self.url, "RuleName": self.name, "RuleHash": self.content_hash, "Rule": self.document}

    @classmethod
    def from_json(cls, holder: Mapping[str, Any]) -> Self:
        return cls(holder["Rule"], holder["RuleURL"], holder["RuleName"], holder["RuleHash"])


@lru_cache(maxsize=1024)
def _document(rule: Rule) -> dict[str, Any]:
    """The same for all files of a rule, so it is made once."""
    return pinned(rule.spec)


@lru_cache(maxsize=256)
def _parsed(document: bytes) -> RuleSpec:
    return stored_spec(orjson.loads(document))
