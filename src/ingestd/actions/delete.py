"""`delete`: remove objects, by default the files that were loaded.

A file of the batch is deleted only in the generation that was loaded: a newer upload under its name stays.
"""

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.objects import Fate, each, refs
from ingestd.model.errors import PreconditionFailed
from ingestd.model.objects import ObjectRef
from ingestd.rules.actions import DeleteRequest


async def run(ctx: ActionContext, step: Step, request: DeleteRequest) -> Outcome:
    async def one(ref: ObjectRef) -> Fate:
        own = ctx.file_at(ref)
        try:
            deleted = await ctx.store.delete(ref, if_generation=own.generation if own else None)
        except PreconditionFailed:
            return Fate.SUPERSEDED
        return Fate.DELETED if deleted else Fate.GONE

    urls = [*request.urls, *([request.source_url] if request.source_url else [])]
    return Outcome(details={"objects": await each(ctx, step, refs(urls), one)})
