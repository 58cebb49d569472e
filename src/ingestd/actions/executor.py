"""Runs lists of actions: in order, each at most once per batch as far as the outside can tell.

- The first error stops a list. A BigQuery action is finished before its next sibling starts.
- A step that is recorded as finished is skipped, and its recorded response is used.
- An error that time may heal (`Transient`, `Throttled`) decides nothing: it leaves at once, and the same list may be
  run again later. Any other error, or any error on the last try, first runs the action's OnFailure; steps of OnFailure
  are recorded like all others, so running the list again does not repeat them.
- Clean-up runs when the list is settled (all done, bad input, or the last try), never while it may still be resumed.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog
from prometheus_client import Counter
from pydantic import ValidationError

from ingestd.actions.catalog import ACTIONS
from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.fill import fill_from_job
from ingestd.actions.plan import PlannedAction
from ingestd.actions.values import scope
from ingestd.model.aside import aside
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient
from ingestd.model.jobs import JobRef, JobState
from ingestd.ops import tracing
from ingestd.ops.redaction import hiding, redacted
from ingestd.rules.actions import Request
from ingestd.rules.expansion import Scope, render
from ingestd.rules.secrets import secret_texts

log = structlog.get_logger(__name__)

ACTIONS_TOTAL = Counter("ingestd_actions", "Post-actions by outcome.", ["action", "outcome"])
for _name in ACTIONS:
    for _outcome in ("succeeded", "failed", "skipped"):
        ACTIONS_TOTAL.labels(_name, _outcome)


_MANY_FILES = 20_000  # of a batch: from there on requests that may name them are filled in beside the event loop


class ActionFailed(Exception):  # noqa: N818 - says what happened
    """An action did not succeed; `cause` says which kind of failure it was."""

    def __init__(self, step: int, action: str, cause: Exception) -> None:
        super().__init__(f"step {step} ({action}): {cause}")
        self.step = step
        self.action = action
        self.cause = cause

    @property
    def may_heal(self) -> bool:
        """Whether running the same list again later may succeed with nothing changed."""
        return isinstance(self.cause, Transient | Throttled)


async def run_actions(
    ctx: ActionContext,
    actions: Sequence[PlannedAction],
    *,
    job: JobState | None = None,
    error: str = "",
    cleanup: Sequence[PlannedAction] = (),
    last_try: bool = False,
) -> None:
    """Run a rule's list after `job`; raises `ActionFailed` of the first action that did not succeed."""
    try:
        await _Run(ctx, last_try).list(actions, job, error, None)
    except ActionFailed as failure:
        if last_try or isinstance(failure.cause, BadInput):
            with suppress(ActionFailed):  # logged and counted; the list's own failure is the one to report
                await _clean_up(ctx, cleanup, job, error or str(failure.cause))
        raise
    await _clean_up(ctx, cleanup, job, error)


async def _clean_up(ctx: ActionContext, actions: Sequence[PlannedAction], job: JobState | None, error: str) -> None:
    """Each clean-up action gets its chance, whatever became of the others; the first failure is raised at the end."""
    failures: list[ActionFailed] = []
    for action in actions:
        try:
            await _Run(ctx, last_try=True).list((action,), job, error, None)
        except ActionFailed as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


class _Run:
    def __init__(self, ctx: ActionContext, last_try: bool) -> None:
        self._ctx = ctx
        self._last_try = last_try

    async def list(
        self, actions: Sequence[PlannedAction], job: JobState | None, error: str, parent_response: Any
    ) -> None:
        """Run each action with its nested lists; a response is what the next one refers to."""
        ctx, previous = self._ctx, parent_response
        for action in actions:
            step = Step(action.step, action.name, scope(ctx.values, previous, job, error, parent_response), job, error)
            if ctx.progress.finished(step.number):
                outcome = await self._restored(step, ctx.progress.response(step.number))
            else:
                try:
                    with tracing.span(f"action {step.action}", step=step.number):
                        outcome = await self._act(action, step)
                except IngestError as failure:
                    raise await self._failed(action, step, failure) from failure
                await self._record(step, outcome)
            previous = outcome.response if outcome else None
            if outcome is not None:
                await self.list(action.on_success, outcome.job or job, "", outcome.response)

    async def _act(self, action: PlannedAction, step: Step) -> Outcome | None:
        """The action itself, without nested lists. None: skipped, with everything below it."""
        if not await self._wanted(action, step):
            return None
        heavy = len(self._ctx.files) > _MANY_FILES
        request = await aside(heavy, filled_request, await self._ctx.opened(action), step, self._ctx.settings.home)
        with hiding(await aside(heavy, secret_texts, request)):
            try:
                outcome = await ACTIONS[action.name].run(self._ctx, step, request)
            except IngestError as error:
                error.args = redacted(error.args)
                raise
            except Exception as bug:
                log.exception("action.broke", step=step.number, action=step.action, event_id=self._ctx.event_id)
                raise Fatal(redacted(f"{type(bug).__name__}: {bug}")) from bug
            return replace(outcome, response=redacted(outcome.response), details=redacted(outcome.details))

    async def _record(self, step: Step, outcome: Outcome | None) -> None:
        ctx = self._ctx
        word = "skipped" if outcome is None else "succeeded"
        ACTIONS_TOTAL.labels(step.action, word).inc()
        details = outcome.details if outcome else {}
        log.info(f"action.{word}", step=step.number, action=step.action, event_id=ctx.event_id, **details)
        durable = outcome is not None and ACTIONS[step.action].durable
        response = outcome.response if outcome else _SKIPPED
        try:
            await ctx.progress.record(step.number, word, response, durable=durable)
        except IngestError as error:
            # The action itself did well, so its OnFailure has no business here.
            raise ActionFailed(step.number, step.action, error) from error

    async def _restored(self, step: Step, response: Any) -> Outcome | None:
        """A finished step's outcome; a job is fetched again, since nested actions may refer to it."""
        if response == _SKIPPED:
            return None
        reference = response.get("JobReference") if isinstance(response, Mapping) else None
        if not isinstance(reference, Mapping):
            return Outcome(response)
        ref = JobRef(reference["ProjectId"], reference["Location"], reference["JobId"])
        try:
            return Outcome(response, await self._ctx.warehouse.get_job(ref))
        except IngestError as error:
            raise ActionFailed(step.number, step.action, error) from error

    async def _wanted(self, action: PlannedAction, step: Step) -> bool:
        condition = action.action.when
        if condition is None:
            return True
        name = render(Scope(step.values).expand_text(condition.exists))
        return await self._ctx.warehouse.table(self._ctx.table(name).partition(None)) is not None

    async def _failed(self, action: PlannedAction, step: Step, cause: Exception) -> ActionFailed:
        """The failure to raise, after OnFailure where the verdict is final."""
        ctx = self._ctx
        failure = ActionFailed(step.number, step.action, cause)
        ACTIONS_TOTAL.labels(step.action, "failed").inc()
        log.error(
            "action.failed",
            step=step.number,
            action=step.action,
            event_id=ctx.event_id,
            kind=type(cause).__name__,
            error=str(cause),
        )
        if failure.may_heal and not self._last_try:
            return failure
        try:
            await self.list(action.on_failure, step.job, str(cause), {"Error": str(cause)})
        except ActionFailed as second:
            # The first failure is the one to report; the second has been logged and counted on its own.
            log.warning("action.on_failure_stopped", step=second.step, action=second.action, event_id=ctx.event_id)
            if second.may_heal and not self._last_try:
                return second
        return failure


_SKIPPED = {"Skipped": True}


def filled_request(body: Request, step: Step, home: str) -> Request:
    """The request with its variables, and what it leaves unsaid, filled in."""
    own_sql = ACTIONS[step.action].own_sql
    kept = {name: getattr(body, name) for name in own_sql}
    try:
        filled = body.model_copy(update=dict.fromkeys(own_sql)).expanded(Scope(step.values, home=home))
    except ValueError as error:
        raise BadInput(f"{step.action}: {_reason(error)}") from error
    return fill_from_job(filled.model_copy(update=kept), step.job)


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    return str(error)
