"""A batch's post-actions: the record gives them their variables and remembers how far they got."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson
import structlog

from ingestd.actions.context import ActionContext, ActionHttp, ActionSettings, BatchRows
from ingestd.actions.executor import ActionFailed, run_actions
from ingestd.actions.objects import movers, tells_target
from ingestd.actions.plan import Plan, PlannedAction, plan
from ingestd.batch.expiries import Expiries
from ingestd.batch.journal import Held, Journal
from ingestd.batch.keyring import Keyring
from ingestd.batch.quarantine import Quarantine
from ingestd.batch.record import Kind, Record, StepOutcome
from ingestd.batch.sources import MANY_FILES
from ingestd.batch.variables import batch_variables
from ingestd.model.aside import aside
from ingestd.model.errors import Fatal, IngestError
from ingestd.model.jobs import JobState
from ingestd.model.objects import FileVersion, ObjectInfo
from ingestd.model.preparation import Drift
from ingestd.model.schema import schema_from_rest
from ingestd.ports import ObjectStore, Publisher, SparkSql, Warehouse
from ingestd.rules.catalogue import Context, names
from ingestd.rules.expansion import unknown_variables
from ingestd.rules.rule import plain
from ingestd.settings import Settings
from ingestd.warehouse.jobs import JobRunner

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RecordProgress:
    """Finished steps live in the record; those that must never be repeated are saved at once."""

    held: Held
    journal: Journal

    def finished(self, step: int) -> bool:
        return step in self.held.record.steps

    def response(self, step: int) -> Any:
        return self.held.record.steps[step].response

    async def record(self, step: int, outcome: str, response: Any, *, durable: bool) -> None:
        steps = {**self.held.record.steps, step: StepOutcome(outcome, response)}
        self.held.record = replace(self.held.record, steps=steps)
        if durable:
            await self.journal.save(self.held)


class PostActions:
    def __init__(
        self,
        *,
        store: ObjectStore,
        warehouse: Warehouse,
        publisher: Publisher,
        http: ActionHttp,
        jobs: JobRunner,
        journal: Journal,
        settings: Settings,
        keyring: Keyring,
        spark: SparkSql | None = None,
    ) -> None:
        self._store = store
        self._warehouse = warehouse
        self._publisher = publisher
        self._http = http
        self._jobs = jobs
        self._journal = journal
        self._settings = settings
        self._keyring = keyring
        self._spark = spark
        self._quarantine = Quarantine(store, settings)
        self._expiries = Expiries(warehouse)

    async def on_success(self, held: Held, job: JobState | None, *, last_try: bool) -> None:
        await self._expiries.set(held.record)
        steps = _plan(held.record)
        if held.record.asynchronous:
            await self._note(held.record, "dispatch.json", steps)
        if not steps.on_success and not steps.cleanup:
            return
        ctx = await self._context_aside(held, lambda: held.record.loaded_files, steps)
        await _translated(run_actions(ctx, steps.on_success, job=job, cleanup=steps.cleanup, last_try=last_try))

    async def on_failure(self, held: Held, job: JobState | None, error: str, *, last_try: bool) -> None:
        steps = _plan(held.record)
        if held.record.asynchronous:
            await self._note(held.record, "dispatch.json", steps)
        if not steps.on_failure and not steps.cleanup:
            return
        ctx = await self._context_aside(held, lambda: held.record.failed_files, steps)
        run = run_actions(ctx, steps.on_failure, job=job, error=error, cleanup=steps.cleanup, last_try=last_try)
        await _translated(run)

    async def on_blocked(self, held: Held, error: str, *, patient: bool) -> None:
        """Tell at once that the batch waits for a person, and leave everything else to its end.

        A rule with `OnBlocked` says itself what is done. Of one without, what only tells in `OnFailure` is done now,
        under its own step's number: its author wanted to hear of a missing table, not of the week that has passed
        since. A finished step is in the record before the next begins, so neither another wait nor the end repeats
        it; whoever dies between telling and saving tells once more, under the same idempotency key.
        """
        steps = _plan(held.record)
        ctx = self._context(held, held.record.files)
        telling = [(one,) for one in steps.on_failure if _only_tells(one)] if patient else []
        for actions in [steps.on_blocked] if steps.on_blocked else telling:
            try:
                await run_actions(ctx, actions, error=error)
            except ActionFailed as failure:  # logged and counted; why the batch waits stays its error
                log.warning("batch.not_told", event_id=held.record.event_id, error=str(failure))

    def guarded(self, record: Record, info: ObjectInfo) -> bool:
        """Whether this very rule has put the object where it lies, or had it before the rules that did.

        An earlier version called the rule by its workflow, though others have that name as well. It says no more which
        of them it was, so none of them takes what that version moved.
        """
        keys = movers(info)
        if not keys or not record.rule.keys.isdisjoint(keys):
            return bool(keys)
        return record.rule.workflow_name in keys and not tells_target(info)

    async def quarantine(self, held: Held) -> None:
        """Set aside the files that are at fault, and write down what became of those that need a person's eye."""
        if held.record.kind is Kind.LOAD and held.record.progress.wrong:
            await self._quarantine.put_away(self._context(held, held.record.files), held.record)

    async def _note(self, record: Record, name: str, steps: Plan) -> None:
        if record.window is not None:
            return  # its record has all of it; objects beside it would double what a window costs
        document = orjson.dumps(steps.to_json(), option=orjson.OPT_INDENT_2, default=str)
        await self._journal.note(self._journal.beside(record, name), document)

    async def _context_aside(
        self, held: Held, files: Callable[[], tuple[FileVersion, ...]], steps: Plan
    ) -> ActionContext:
        """The context; of many files, made beside the event loop."""
        return await aside(len(held.record.files) > MANY_FILES, lambda: self._context(held, files(), steps))

    def _context(self, held: Held, files: tuple[FileVersion, ...], steps: Plan | None = None) -> ActionContext:
        record = held.record
        actions = self._settings.actions
        return ActionContext(
            store=self._store,
            warehouse=self._warehouse,
            publisher=self._publisher,
            http=self._http,
            jobs=self._jobs,
            progress=RecordProgress(held, self._journal),
            settings=ActionSettings(
                project=self._settings.project,
                # A route's job is somebody else's: that its actions may run in that project is not said.
                job_project=record.placement.project if record.kind is Kind.LOAD else "",
                location=record.placement.location or self._settings.jobs.location,
                allowed_hosts=actions.allowed_hosts,
                timeout=actions.timeout,
                slack_token=actions.slack_token,
                slack_token_file=actions.slack_token_file,
                slack_url=actions.slack_url,
                staging=self._settings.staging,
            ),
            event_id=record.event_id,
            replays=record.replays,
            dest=record.dest,
            mode=record.mode,
            rule_key=record.rule.name,
            files=files,
            values=self._values(record, files),
            spark=self._spark,
            rows=rows_of(record),
            opened=partial(self._keyring.request, record, steps or Plan()),
        )

    def _values(self, record: Record, files: tuple[FileVersion, ...]) -> dict[str, Any]:
        places = {
            "ProcessURL": self._journal.running(record).url,
            "DoneProcessURL": self._journal.done(record).url,
        }
        return places | batch_variables(record, files, self._settings)


def rows_of(record: Record) -> BatchRows:
    """Prepared files lie in staging until the batch ends; a batch without them is read from its own files."""
    pinned = record.progress.pinned
    if pinned is None:
        by_rule = record.kind is Kind.LOAD and record.success is None
        return _own_rows(record) if by_rule else BatchRows(record.load)
    prepared = pinned.prepared
    load = {"sourceFormat": prepared.format, **prepared.load_options}
    uris = tuple(uri for output in prepared.outputs for uri in output.uris)
    return BatchRows(load, prepared.schema, uris)


def _own_rows(record: Record) -> BatchRows:
    """The files as their load has read them: by the rule's columns, and without what it passed over.

    Columns that the table got by this batch are known by the table alone; CSV has no names, so its columns are those
    that the load was given.
    """
    load, drift = record.load, record.rule.spec.dest.drift
    given = schema_from_rest(load.get("schema"))
    if drift is Drift.EVOLVE and load.get("sourceFormat") != "CSV":
        given = ()
    passed_over = {"ignoreUnknownValues": True} if drift in (Drift.DISCARD_VALUE, Drift.EVOLVE) else {}
    return BatchRows({**load, **passed_over}, given)


def _plan(record: Record) -> Plan:
    rule = record.rule
    return plan(rule.on_success, rule.on_failure, on_blocked=rule.on_blocked)


_TELLERS = frozenset({"notify", "push", "call"})


def _only_tells(planned: PlannedAction) -> bool:
    """Whether it changes nothing here and needs nothing of the actions around it."""
    action = planned.action
    if action.name not in _TELLERS or action.when or planned.on_success or planned.on_failure:
        return False
    chained = {f"${name}" for name in names(Context.CHAINED)}
    return chained.isdisjoint(unknown_variables(plain(action.body), frozenset()))


async def _translated(run: Any) -> None:
    """An action's failure as one of the four kinds, naming the step."""
    try:
        await run
    except ActionFailed as failure:
        cause = failure.cause
        if isinstance(cause, IngestError):
            cause.args = (str(failure), *cause.args[1:])
            raise cause from failure
        raise Fatal(str(failure)) from failure
