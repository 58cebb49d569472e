"""`delete`: remove objects, by default the files that were loaded.

A file of the batch is deleted only in the generation that was loaded: a newer upload under its name stays.
"""

from collections.abc import Sequence

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.objects import MANY_OBJECTS, Fate, counted, refs
from ingestd.model.aside import aside
from ingestd.model.errors import IngestError, PreconditionFailed
from ingestd.ports import Deletion
from ingestd.rules.actions import DeleteRequest


async def run(ctx: ActionContext, step: Step, request: DeleteRequest) -> Outcome:
    deletions = await aside(len(request.urls) > MANY_OBJECTS, _deletions, ctx, request)
    outcomes = await ctx.store.delete_all(deletions)
    return await aside(len(outcomes) > MANY_OBJECTS, _outcome, ctx, step, deletions, outcomes)


def _deletions(ctx: ActionContext, request: DeleteRequest) -> list[Deletion]:
    objects = refs([*request.urls, *([request.source_url] if request.source_url else [])])
    return [Deletion(ref, own.generation if (own := ctx.file_at(ref)) else None) for ref in objects]


def _outcome(
    ctx: ActionContext, step: Step, deletions: Sequence[Deletion], outcomes: Sequence[bool | IngestError]
) -> Outcome:
    objects = [one.ref for one in deletions]
    return Outcome(details={"objects": counted(ctx, step, objects, [_fate(one) for one in outcomes])})


def _fate(outcome: bool | IngestError) -> Fate | IngestError:
    if isinstance(outcome, PreconditionFailed):
        return Fate.SUPERSEDED
    if isinstance(outcome, IngestError):
        return outcome
    return Fate.DELETED if outcome else Fate.GONE
