"""A rule ready for use: its specification, where it came from, what it matches, and a hash that pins it.

A batch carries the whole rule (see `pinned`), so an edit of the file never changes a batch under way.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Self

from ingestd.documents import Document
from ingestd.rules.actions import Action
from ingestd.rules.fields import compile_pattern, pattern_set
from ingestd.rules.schema import RuleSpec, Split
from ingestd.rules.secrets import actions_of, seal

SCHEMA_VERSION = 1


class Matcher:
    """The conditions of a rule."""

    __slots__ = ("_groups", "disabled", "exclusion", "never", "pattern", "prefix", "suffix")

    def __init__(self, spec: RuleSpec) -> None:
        when, pattern = spec.when, spec.dest.pattern or ""
        self.prefix = when.prefix
        self.suffix = when.suffix
        self.pattern = when.filter or pattern
        self.exclusion = when.exclusion
        self.disabled = spec.disabled
        self.never = bool(when.directory)
        """`Directory: true` asks for folders, and only files arrive."""
        self._groups = pattern

    def accepts(self, path: str) -> bool:
        """Whether all conditions hold."""
        return (
            not self.never
            and path.startswith(self.prefix)
            and path.endswith(self.suffix)
            and (not self.pattern or bool(pattern_set(self.pattern).search(path)))
            and not self.excludes(path)
        )

    def excludes(self, path: str) -> bool:
        return bool(self.exclusion) and bool(pattern_set(self.exclusion).search(path))

    @property
    def group_count(self) -> int:
        """How many capture groups `Dest.Pattern` has."""
        return compile_pattern(self._groups).groups if self._groups else 0

    def groups(self, path: str) -> tuple[str, ...]:
        """The capture groups of `Dest.Pattern`, empty when there is none or it does not match."""
        found = compile_pattern(self._groups).search(path) if self._groups else None
        return tuple(group or "" for group in found.groups()) if found else ()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Rule:
    """One rule of one file. Equal when it says the same and comes from the same place."""

    url: str
    index: int
    name: str
    spec: RuleSpec = field(repr=False)
    content_hash: str
    matcher: Matcher = field(repr=False, compare=False)
    names: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """What it may be called, best first; which of them it is depends on the other rules (see `rules.names`)."""

    @classmethod
    def of(cls, spec: RuleSpec, url: str, index: int = 0, *names: str) -> Self:
        called = names or (url,)
        return cls(url, index, called[0], spec, content_hash(spec), Matcher(spec), called)

    def __hash__(self) -> int:
        return hash((self.url, self.index, self.content_hash))

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every action of the rule, in order."""
        group = self.spec.batch.group if self.spec.batch else None
        return actions_of(self.spec.on_success, self.spec.on_failure, group.on_done if group else ())

    def to_json(self) -> dict[str, Any]:
        """The rule as plain JSON data, as a batch pins it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "url": self.url,
            "index": self.index,
            "name": self.name,
            "content_hash": self.content_hash,
            "rule": pinned(self.spec),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The pinned rule. Its hash is kept as stored: it names what was pinned, whatever has changed since."""
        version = data.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"pinned rule has schema version {version}, this program reads {SCHEMA_VERSION}")
        spec = stored_spec(data["rule"])
        return cls(data["url"], int(data["index"]), data["name"], spec, data["content_hash"], Matcher(spec))


def plain(spec: Document) -> dict[str, Any]:
    """A specification as JSON data, defaults left out so that new fields do not change old hashes."""
    data: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return data


def stored_spec(data: dict[str, Any]) -> RuleSpec:
    """A specification that `plain` wrote, now or in an earlier version: what is left out has the model's default.

    `Match` of a split has another one in rule files, so it is put in; earlier versions had `first` in both.
    """
    schema = (data.get("Dest") or {}).get("Schema") or {}
    split = schema.get("Split")
    if split and "Match" not in split:
        filled = {**schema, "Split": {**split, "Match": Split.model_fields["match"].default}}
        data = {**data, "Dest": {**data["Dest"], "Schema": filled}}
    return RuleSpec.model_validate(data)


def pinned(spec: Document) -> dict[str, Any]:
    """A specification as it is stored outside the rule's own file: without its secrets."""
    return seal(plain(spec))


def content_hash(spec: Document) -> str:
    """SHA-256 of the canonical JSON: the same for every spelling, order and comment of the same rule.

    Its secrets do not go into it: from a hash that many may read, a weak one could be guessed.
    """
    canonical = json.dumps(pinned(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
