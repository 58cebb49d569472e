"""`delete`: remove objects, by default the files that were loaded.

A file of the batch is deleted only in the generation that was loaded: a newer upload under its name stays.
"""

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.objects import Fate, counted, refs
from ingestd.model.errors import IngestError, PreconditionFailed
from ingestd.model.objects import ObjectRef
from ingestd.ports import Deletion
from ingestd.rules.actions import DeleteRequest


async def run(ctx: ActionContext, step: Step, request: DeleteRequest) -> Outcome:
    objects = refs([*request.urls, *([request.source_url] if request.source_url else [])])
    outcomes = await ctx.store.delete_all([_deletion(ctx, ref) for ref in objects])
    return Outcome(details={"objects": counted(ctx, step, objects, [_fate(one) for one in outcomes])})


def _deletion(ctx: ActionContext, ref: ObjectRef) -> Deletion:
    own = ctx.file_at(ref)
    return Deletion(ref, own.generation if own else None)


def _fate(outcome: bool | IngestError) -> Fate | IngestError:
    if isinstance(outcome, PreconditionFailed):
        return Fate.SUPERSEDED
    if isinstance(outcome, IngestError):
        return outcome
    return Fate.DELETED if outcome else Fate.GONE
