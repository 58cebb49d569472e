"""The documents of the console's API, made from what the daemon holds in memory.

Only `batch` and `explain` read the journal, for the one batch or file that was asked for. Invariant: no view lists a
bucket on behalf of a page that refreshes itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import SecretStr

from ingestd import __version__
from ingestd.batch.journal import Held, Journal
from ingestd.batch.record import Record
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.pending import OpenWindow
from ingestd.console.feed import Feed
from ingestd.console.story import batch_story, file_story, remembered_story
from ingestd.documents import Problem
from ingestd.documents.secrecy import STARS, names_a_secret
from ingestd.ledger.explain import Explainer, Explanation
from ingestd.model.clock import Clock
from ingestd.model.errors import UnreadableObject
from ingestd.model.objects import ObjectRef
from ingestd.ops.api import BadRequest, Document, Page
from ingestd.ops.history import Ended, RuleTotals, Trouble, TroubleKind
from ingestd.rules.lint import warnings_by_rule
from ingestd.rules.loading import RuleBook, RuleLoader
from ingestd.rules.rule import Rule
from ingestd.rules.secrets import seal
from ingestd.settings import Settings

T = TypeVar("T")
Status = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class ConsoleViews:
    """Implements `ingestd.ops.api.Views`."""

    in_force: Settings
    clock: Clock
    feed: Feed
    rule_loader: RuleLoader
    open_windows: Windows
    active: Callable[[], list[Record]]
    journal: Journal
    explainer: Explainer
    status: Status
    replica: str
    started: datetime
    _linted: RuleBook | None = None
    _warnings: dict[tuple[str, int], list[Problem]] | None = None

    async def overview(self) -> Document:
        history, now = self.feed.history, self.clock.now()
        windows = self.open_windows.open_windows
        status = await self.status()
        book = self.rule_loader.book
        awaiting = self.feed.awaiting()
        return {
            "version": __version__,
            "project": self.in_force.project,
            "replica": self.replica,
            "ready": status["ready"],
            "now": now,
            "started": self.started,
            "totals": _totals(history.totals),
            "batches": history.batch_count,
            "troubles": dict(history.trouble_counts),
            "in_flight": status["in_flight"],
            "windows": {
                "open": len(windows),
                "files": sum(window.files for window in windows),
                "size": sum(window.size for window in windows),
                "next_due": min((window.due for window in windows), default=None),
            },
            "running": {
                "active": len(self.active()),
                "awaiting": sum(record.wait.until is None for record in awaiting),
                "blocked": sum(record.wait.until is not None for record in awaiting),
            },
            "rules": {"count": len(book.rules), "problems": len(book.problems), "loaded_at": book.loaded_at},
            "spark": status.get("spark"),
        }

    async def series(self, minutes: int) -> Document:
        seconds, samples = self.feed.history.samples(minutes)
        return {
            "seconds": seconds,
            "at": [one.at for one in samples],
            "files": [one.files for one in samples],
            "rows": [one.rows for one in samples],
            "size": [one.size for one in samples],
            "troubles": [one.troubles for one in samples],
            "typical": [one.typical for one in samples],
            "slowest": [one.slowest for one in samples],
            "windows": [one.level.windows for one in samples],
            "waiting": [one.level.waiting for one in samples],
            "active": [one.level.active for one in samples],
            "in_flight": [one.level.in_flight for one in samples],
        }

    async def windows(self, page: Page) -> Document:
        found = self.open_windows.open_windows
        if page.query:
            found = [
                one for one in found if _has(page.query, one.window.name, one.head.rule.name, one.window.key.folder)
            ]
        keys: dict[str, Callable[[OpenWindow], Any]] = {
            "due": lambda one: one.due,  # of equals, the one opened first: sorting is stable, so pages fit together
            "files": lambda one: one.files,
            "size": lambda one: one.size,
            "rule": lambda one: (one.head.rule.name, one.due),
            "dest": lambda one: (one.window.key.dest, one.due),
        }
        _sort(found, page.sort or "due", keys)
        return {"now": self.clock.now(), **page.of(found, _window)}

    async def running(self, page: Page) -> Document:
        active = self.active()
        known = {record.event_id for record in active}
        rows = [(record, True) for record in active]
        rows += [(record, False) for record in reversed(self.feed.awaiting()) if record.event_id not in known]
        if page.query:
            rows = [row for row in rows if _has(page.query, row[0].event_id, row[0].dest, row[0].rule.name)]
        status = await self.status()
        now = self.clock.now()
        return {"now": now, "spark": status.get("spark"), **page.of(rows, lambda row: _running(*row))}

    async def batches(self, page: Page) -> Document:
        found: Iterable[Ended] = self.feed.history.recent()
        if page.kind:
            found = (one for one in found if one.phase == page.kind)
        if page.query:
            found = (one for one in found if _has(page.query, one.event_id, one.dest, one.rule, one.source, one.error))
        return page.of(found, asdict)

    async def batch(self, event_id: str) -> Document | None:
        for record in (*self.active(), *self.feed.awaiting()):
            if record.event_id == event_id:
                return batch_story(record, self.journal.running(record).url)
        known = self.feed.history.batch(event_id)
        if known is None:
            return None
        held = await self._held(known.record)
        if held is None:  # the journal's own lifecycle has removed it; what memory has is better than nothing
            return {**asdict(known), "steps": [], "file_count": known.files, "files": []}
        return batch_story(held.record, known.record)

    async def rules(self, page: Page) -> Document:
        book = self.rule_loader.book
        warnings = await self._lint(book)
        now, totals = self.clock.now(), self.feed.history.rules
        found = list(book.rules)
        if page.query:
            found = [one for one in found if _has(page.query, one.name, one.url, one.spec.dest.table)]

        def of(rule: Rule) -> RuleTotals:
            return totals.get(rule.name) or _NOTHING

        keys: dict[str, Callable[[Rule], Any]] = {
            "name": lambda one: one.name,
            "rows": lambda one: (of(one).rows, one.name),
            "files": lambda one: (of(one).files.total(), one.name),
            "freshness": lambda one: (of(one).newest or _EPOCH, one.name),
            "problems": lambda one: (len(warnings.get((one.url, one.index), ())), one.name),
        }
        _sort(found, page.sort or "name", keys)
        return {
            "now": now,
            "loaded_at": book.loaded_at,
            "problems": [str(problem) for problem in book.problems[:100]],
            **page.of(found, lambda rule: _rule(rule, of(rule), warnings.get((rule.url, rule.index), ()))),
        }

    async def errors(self, page: Page) -> Document:
        history = self.feed.history
        if page.kind and page.kind not in set(TroubleKind):
            raise BadRequest(f"kind must be one of {', '.join(TroubleKind)}")
        found: Iterable[Trouble] = history.recent_troubles()
        if page.kind:
            found = (one for one in found if one.kind == page.kind)
        if page.query:
            found = (
                one for one in found if _has(page.query, one.subject, one.reason, one.rule, one.dest, one.event_id)
            )
        return {"counts": dict(history.trouble_counts), **page.of(found, asdict)}

    async def quotas(self) -> Document:
        status = await self.status()
        return {"quotas": status.get("quotas", {}), "paces": status.get("paces", {})}

    async def settings(self) -> Document:
        """The settings in force; secrets are shown as stars."""
        found = self.in_force.model_dump()
        return {"settings": _plain({**found, "routes": [seal(route) for route in found["routes"]]})}

    async def explain(self, path: str, *, full: bool) -> Document:
        ref = ObjectRef.parse(path)
        for record in (*self.active(), *self.feed.awaiting()):
            if any(file.ref == ref for file in record.known_files):
                return await self._short(ref, record, self.journal.running(record).url)
        known = None if full else self.feed.history.batch_of(path)
        held = await self._held(known.record) if known else None
        if known and held:
            return await self._short(ref, held.record, known.record)
        explanation = await self.explainer.explain(ref, self.rule_loader.book.route(ref.name))
        return {"complete": True, **await self._whole(explanation)}

    async def _held(self, url: str) -> Held | None:
        """The record; None when it is gone, or a newer version has rewritten it."""
        try:
            return await self.journal.read(ObjectRef.parse(url))
        except UnreadableObject:
            return None

    async def _short(self, ref: ObjectRef, record: Record, url: str) -> Document:
        """What is known without looking through the journal: the file's last batch."""
        history = file_story(record, ref, url, await self.explainer.unloaded(record, ref))
        return {"path": ref.url, "complete": False, "verdict": "", "found": None, "plan": [], "history": history}

    async def _whole(self, explanation: Explanation) -> Document:
        found = explanation.found
        history: list[Document] = []
        for incident in explanation.history:
            url = incident.record_url
            held = await self._held(url) if url else None
            unloaded = {incident.generation: incident.unloaded} if incident.unloaded else {}
            told = file_story(held.record, explanation.ref, url, unloaded) if held else [remembered_story(incident)]
            mine = [one for one in told if one["generation"] == str(incident.generation)]
            history += [{**one, "replays": [note.to_json() for note in incident.replays]} for one in mine]
        described = (
            {"generation": str(found.generation), "size": found.size, "created": found.created} if found else None
        )
        return {
            "path": explanation.ref.url,
            "verdict": explanation.verdict,
            "found": described,
            "plan": [*explanation.plan, *explanation.notes],
            "history": history,
        }

    async def _lint(self, book: RuleBook) -> dict[tuple[str, int], list[Problem]]:
        """Warnings about the rules in force; looked for again when they change, beside the event loop."""
        if self._linted is not book or self._warnings is None:
            parsed = self.rule_loader.parsed
            self._warnings = await asyncio.to_thread(warnings_by_rule, parsed)
            self._linted = book
        return self._warnings


_NOTHING = RuleTotals()
_EPOCH = datetime.fromtimestamp(0, UTC)


def _sort(items: list[T], sort: str, keys: dict[str, Callable[[T], Any]]) -> None:
    items.sort(key=keys[sort.removeprefix("-")], reverse=sort.startswith("-"))


def _has(query: str, *texts: str) -> bool:
    return any(query in text.lower() for text in texts)


def _window(one: OpenWindow) -> Document:
    window = one.window
    return {
        "name": window.name,
        "event_id": window.event_id,
        "rule": one.head.rule.name,
        "dest": window.key.dest,
        "folder": window.key.folder,
        "extension": window.key.extension,
        "start": datetime.fromtimestamp(window.start, UTC),
        "due": one.due,
        "files": one.files,
        "size": one.size,
        "pending": len(one.pending),
        "sequence": window.sequence,
        "owner": one.head.owner,
        "owned": one.owned,
    }


def _running(record: Record, active: bool) -> Document:
    progress = record.progress
    state = "working" if active else ("blocked" if record.wait.until else "awaiting job")
    return {
        "event_id": record.event_id,
        "kind": record.kind,
        "phase": record.phase,
        "state": state,
        "rule": record.rule.name,
        "dest": record.dest,
        "files": len(record.files),
        "loaded": len(progress.loaded),
        "rows": progress.rows,
        "attempt": record.attempt,
        "created": record.created,
        "source": record.files[0].ref.url if record.files else "",
        "error": record.error,
        "retry_at": record.wait.until,
        "job": record.load_job().job_id if record.kind == "load" else str(record.trigger_job or ""),
    }


def _totals(totals: RuleTotals) -> Document:
    return {
        "files": dict(totals.files),
        "batches": dict(totals.batches),
        "rows": totals.rows,
        "size": totals.size,
        "last_ended": totals.last_ended,
        "newest": totals.newest,
        "last_error": totals.last_error,
    }


def _rule(rule: Rule, totals: RuleTotals, warnings: Iterable[Problem]) -> Document:
    spec, when = rule.spec, rule.spec.when
    return {
        "name": rule.name,
        "url": rule.url,
        "hash": rule.content_hash[:12],
        "disabled": spec.disabled,
        "when": {
            "prefix": when.prefix,
            "suffix": when.suffix,
            "filter": rule.matcher.pattern,
            "exclusion": when.exclusion,
        },
        "dest": spec.dest.table,
        "async": spec.async_,
        "window_seconds": spec.batch.duration.total_seconds() if spec.batch else None,
        "on_success": [action.name for action in spec.on_success],
        "on_failure": [action.name for action in spec.on_failure],
        "totals": _totals(totals),
        "warnings": [{"place": str(one.place), "path": one.path, "message": one.message} for one in warnings],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return STARS
    if isinstance(value, dict):
        return {str(key): STARS if one and _secret(str(key), one) else _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _secret(key: str, value: Any) -> bool:
    """Whether free-form settings (Spark's) hold a secret here, going by the name."""
    return isinstance(value, str) and names_a_secret(key)
