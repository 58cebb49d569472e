"""Where the secrets of a pinned action come from: the rule, route or hand-written task in force under the same name.

Records are sealed (see `rules.secrets`), so an action that needs a secret asks for it when it runs:

| meanwhile                                   | then                                                                  |
|---------------------------------------------|-----------------------------------------------------------------------|
| nothing, or a restart, or another replica   | the secret of the rule, which every replica reads                     |
| the secret was replaced                     | the new one                                                           |
| the rule was edited elsewhere, or moved     | the secret: the action is still there, the same but for secrets       |
| the action was edited, or the rule deleted  | the batch waits and says what it misses; after `give_up_after` it has |
|                                             | failed, and a replay goes on once the rule has the action again       |
| the record is of an older version, in clear | what the record says                                                  |
"""

from collections.abc import Callable

from ingestd.actions.plan import Plan, PlannedAction, plan
from ingestd.batch.record import Record
from ingestd.batch.tasks import DeferredTasks
from ingestd.model.errors import BadInput, Transient
from ingestd.rules.actions import Action, Request
from ingestd.rules.secrets import reopened, request_is_sealed

ActionsInForce = Callable[[str, str], tuple[Action, ...] | None]
"""By name, else by hash: all actions of a rule or route in force; None when there is none."""


class Keyring:
    def __init__(self, tasks: DeferredTasks, in_force: ActionsInForce = lambda _name, _hash: None) -> None:
        self._tasks = tasks
        self._in_force = in_force

    async def request(self, record: Record, steps: Plan, action: PlannedAction) -> Request:
        """The action's request with its secrets; `Transient` when nobody has them."""
        request = action.action.body
        if not request_is_sealed(request):
            return request
        current = await self._current(record)
        if current is None:
            raise Transient(
                f"its secrets are kept in {_named(record)} alone, which is not in force any more;"
                " put the rule back and the batch goes on"
            )
        pinned = [one.action.body for one in steps.walk()]
        found = reopened(request, pinned, [one.body for one in current])
        if found is None:
            raise Transient(
                f"its secrets are kept in {_named(record)} alone, which has no such action any more"
                " (the same in everything but secrets); put it back and the batch goes on"
            )
        return found

    async def _current(self, record: Record) -> tuple[Action, ...] | None:
        found = self._in_force(record.rule.name, record.rule.content_hash)
        if found is None and record.trigger_job is not None:
            job_id = record.trigger_job.job_id
            if record.rule.url != self._tasks.ref(job_id).url:
                return None
            try:
                task = await self._tasks.find(job_id)
            except BadInput:
                return None
            if task is not None:
                written = plan(task.document.get("OnSuccess") or (), task.document.get("OnFailure") or ())
                return tuple(one.action for one in written.walk())
        return found


def _named(record: Record) -> str:
    rule = record.rule
    return rule.url if rule.url == rule.name else f"rule {rule.name} ({rule.url})"
