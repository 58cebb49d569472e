"""Rules in force, and keeping up with edits.

`RuleBook` is an immutable snapshot. `RuleLoader.refresh` reads only what changed and swaps the snapshot at once, so a
decision is always made by one consistent set of rules. Invariants: a file that no longer parses keeps its last good
version; each broken version is logged once; a rule someone still holds stays reachable by its hash.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from weakref import WeakValueDictionary

import structlog
from prometheus_client import Counter, Gauge

from ingestd.documents import DocumentError, Problem
from ingestd.model.clock import Clock, SystemClock
from ingestd.model.errors import NotFound, Throttled, Transient
from ingestd.model.unknown_keys import UnknownKeys
from ingestd.rules.actions import Action
from ingestd.rules.matching import Routing, RuleIndex
from ingestd.rules.names import told_apart
from ingestd.rules.parsing import ParsedFile, ParsedRule, is_rule_file, parse_file
from ingestd.rules.routes import Route
from ingestd.rules.rule import Rule
from ingestd.rules.source import RuleSource

log = structlog.get_logger(__name__)

_INDEXED_ASIDE = 1_000
_LISTED_AGAIN = 3  # before the first book, when files are moved about

RELOADS = Counter("ingestd_rule_reloads", "Rule files read, by outcome.", ["outcome"])
for _outcome in ("loaded", "broken", "unlisted"):
    RELOADS.labels(_outcome)
RULES = Gauge("ingestd_rules", "Rules in force.")
BROKEN = Gauge("ingestd_rule_problems", "Problems in rule files; while above zero, some files keep an older version.")
IGNORED = Gauge("ingestd_rule_keys_ignored", "Keys in rule files that no rule has, and that have no effect.")


@dataclass(frozen=True, slots=True)
class RuleBook:
    """All rules and routes in force at one moment."""

    rules: tuple[Rule, ...] = ()
    routes: tuple[Route, ...] = ()
    problems: tuple[Problem, ...] = ()
    loaded_at: datetime | None = None
    index: RuleIndex = field(default_factory=lambda: RuleIndex(()), repr=False, compare=False)
    by_hash: Mapping[str, Rule] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        rules: Iterable[Rule],
        routes: Iterable[Route] = (),
        problems: Iterable[Problem] = (),
        loaded_at: datetime | None = None,
    ) -> "RuleBook":
        ordered = tuple(sorted(told_apart(rules), key=lambda rule: (rule.url, rule.index)))
        by_hash = {rule.content_hash: rule for rule in reversed(ordered)}
        return cls(ordered, tuple(routes), tuple(problems), loaded_at, RuleIndex(ordered), by_hash)

    def actions(self, name: str, content_hash: str) -> tuple[Action, ...] | None:
        """All actions of the rule or route of that name, or else of that content; None when there is none.

        A rule is known by each of its names: it may have had another when the batch began (see `rules.names`).
        """
        same = self.by_hash.get(content_hash)
        if same is not None and name in same.names:
            return same.actions
        named: Iterable[Rule | Route] = (*self.rules, *self.routes)
        found = next((one for one in named if one.name == name), same)
        if found is not None:
            return found.actions
        claiming = [rule for rule in self.rules if name in rule.names]
        return tuple(action for rule in claiming for action in rule.actions) if claiming else None

    def route(self, object_name: str) -> Routing:
        """Which rule takes an object."""
        return self.index.route(object_name)


@dataclass(slots=True)
class _File:
    """What is known of one file: the version looked at last, its last good content, and what is wrong now."""

    version: tuple[str, ...]
    good: ParsedFile | None = None
    problems: tuple[Problem, ...] = ()
    unread: bool = False  # for now; the next refresh tries again


class RuleLoader:
    """Reads rules from a source and keeps the current `book`."""

    def __init__(
        self,
        source: RuleSource,
        clock: Clock | None = None,
        unknown: UnknownKeys = UnknownKeys.TYPOS,
        told: Callable[["RuleBook"], None] = lambda book: None,
    ) -> None:
        self._source = source
        self._unknown = unknown
        self._clock = clock or SystemClock()
        self._files: dict[str, _File] = {}
        self._kept: WeakValueDictionary[str, Rule] = WeakValueDictionary()
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._failed = ""
        self.book = RuleBook()
        self._told = told  # every book that comes into force

    def rule(self, content_hash: str) -> Rule | None:
        """A rule in force, or an older one that some batch still holds."""
        return self.book.by_hash.get(content_hash) or self._kept.get(content_hash)

    @property
    def parsed(self) -> list[ParsedRule]:
        """The rules in force with the documents they were read from, for messages about them."""
        return [rule for file in self._files.values() if file.good for rule in file.good.rules]

    async def refresh(self) -> RuleBook:
        """Look for edits and return the rules now in force. Never raises for what a rule file holds.

        When the source cannot be reached the book stays as it is. The very first time there is nothing to keep, and
        the error is the caller's: whoever began without some of the rules would turn away files that they want.
        """
        async with self._lock:
            try:
                listed = dict(await self._source.list())
            except Exception as error:
                RELOADS.labels("unlisted").inc()
                if self.book.loaded_at is None:
                    raise
                if self._failed != str(error):
                    self._failed = str(error)
                    log.warning("rules.source_unreadable", source=self._source.root, error=str(error))
                return self.book
            self._failed = ""
            changed = await self._update(listed)
            for _ in range(_LISTED_AGAIN):
                if self.book.loaded_at is not None or not any(file.unread for file in self._files.values()):
                    break
                # A file went between listing and reading: before the first book, what took its place is looked for.
                await self._update(dict(await self._source.list()))
            if changed or self.book.loaded_at is None:
                await self._publish()
            return self.book

    def wake(self) -> None:
        """Refresh now instead of at the next interval (on SIGHUP)."""
        self._wake.set()

    async def watch(self, interval: timedelta) -> None:
        """Refresh for ever."""
        while True:
            sleeper = asyncio.ensure_future(self._clock.sleep(interval))
            waker = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait({sleeper, waker}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeper.cancel()
                waker.cancel()
            self._wake.clear()
            await self.refresh()

    async def _update(self, listed: dict[str, str]) -> bool:
        urls = {url for url in listed if is_rule_file(url)}
        gone, new = self._files.keys() - urls, urls - self._files.keys()
        changed = False
        for url in sorted(urls):
            known = self._files.get(url)
            references = known.good.references if known and known.good else ()
            version = (listed[url], *(listed.get(reference, "") for reference in references))
            if known is None or known.version != version:
                changed |= await self._read(url, version, listed)
        if gone and (unread := sorted(url for url in new if self._files[url].unread)):
            # A rule that moves to another file must not be missing in between: whoever comes then would find no rule,
            # and be turned away. Both happen at a refresh that can read the new file.
            log.warning("rules.removal_postponed", removed=sorted(gone), unread=unread)
            for url in new:
                del self._files[url]
            return changed
        for url in gone:
            del self._files[url]
            log.info("rules.file_removed", file=url)
        return changed or bool(gone)

    async def _read(self, url: str, version: tuple[str, ...], listed: Mapping[str, str]) -> bool:
        """Take in a new version; whether that changed anything."""
        file = self._files.setdefault(url, _File(()))
        unreadable: Exception | None = None
        vanished = False  # since it was listed: what took its place is in the next listing

        async def fetch(target: str) -> bytes:
            nonlocal unreadable, vanished
            try:
                return await self._source.read(target)
            except Exception as error:
                unreadable = error
                vanished = target == url and isinstance(error, NotFound | FileNotFoundError)
                raise

        try:
            data = await fetch(url)
            good = await parse_file(url, data, self._source.root, fetch, self._unknown)
        except DocumentError as error:
            problems = error.problems
        except Exception as error:  # noqa: BLE001 - one unreadable file must not hold up the others
            problems = (Problem(url, 0, 0, "", f"cannot be read: {error}"),)
        else:
            RELOADS.labels("loaded").inc()
            file.good, file.problems, file.unread = good, (), False
            file.version = (version[0], *(listed.get(reference, "") for reference in good.references))
            log.info("rules.file_loaded", file=url, rules=len(good.rules), routes=len(good.routes))
            if good.ignored:
                log.warning("rules.keys_ignored", file=url, keys=[str(problem) for problem in good.ignored])
            return True
        if isinstance(unreadable, Transient | Throttled) and self.book.loaded_at is None:
            raise unreadable
        file.unread = vanished or isinstance(unreadable, Transient | Throttled)
        # What could not be read is tried again at the next refresh; what is wrong waits for an edit.
        file.version = () if unreadable else version
        return self._refuse(file, url, problems)

    def _refuse(self, file: _File, url: str, problems: tuple[Problem, ...]) -> bool:
        if file.problems == problems:
            return False
        RELOADS.labels("broken").inc()
        file.problems = problems
        log.error(
            "rules.file_broken",
            file=url,
            kept_last_good=file.good is not None,
            problems=[str(problem) for problem in problems],
        )
        return True

    async def _publish(self) -> None:
        good = [file.good for file in self._files.values() if file.good]
        problems = [problem for file in self._files.values() for problem in file.problems]
        rules = [parsed.rule for file in good for parsed in file.rules]
        routes = [route for file in good for route in file.routes]
        made = partial(RuleBook.of, rules, routes, sorted(problems), self._clock.now())
        # Indexing many rules takes a while, and the event loop has leases to renew.
        self.book = await asyncio.to_thread(made) if len(rules) > _INDEXED_ASIDE else made()
        RULES.set(len(rules))
        BROKEN.set(len(problems))
        IGNORED.set(sum(len(file.ignored) for file in good))
        for rule in self.book.rules:
            self._kept[rule.content_hash] = rule
        self._told(self.book)
