"""`move`: copy, then delete, both pinned to the generation that was loaded.

Repeating it is harmless: the copy is made only once per batch and source (a second copy would announce itself as a new
file to whoever watches the destination), and the delete knows a missing source.
"""

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.objects import EVENT_MARK, SOURCE_MARK, Fate, each, marks, refs
from ingestd.model.errors import BadInput, NotFound, PreconditionFailed
from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectRef
from ingestd.rules.actions import MoveRequest


async def run(ctx: ActionContext, step: Step, request: MoveRequest) -> Outcome:
    sources = refs([*request.source_urls, *([request.source_url] if request.source_url else [])])
    if request.is_dest_absolute_url and len(sources) > 1:
        raise BadInput(f"{len(sources)} objects cannot all become {request.dest_url}; drop IsDestAbsoluteURL")
    (base,) = refs([request.dest_url]) if request.is_dest_absolute_url else (_folder(request.dest_url),)

    async def one(source: ObjectRef) -> Fate:
        target = base if request.is_dest_absolute_url else base / source.name
        return await _move(ctx, source, ctx.file_at(source), target)

    return Outcome(details={"objects": await each(ctx, step, sources, one)})


async def move_file(ctx: ActionContext, file: FileVersion, target: ObjectRef) -> Fate:
    """Move one pinned file; a newer upload under its name stays where it is."""
    return await _move(ctx, file.ref, file, target)


async def _move(ctx: ActionContext, source: ObjectRef, own: FileVersion | None, target: ObjectRef) -> Fate:
    if source == target:
        raise BadInput(f"cannot move {source} onto itself")
    live = await ctx.store.stat(source)
    if live is None:
        return Fate.GONE
    if own is not None and live.generation != own.generation:
        return Fate.SUPERSEDED
    try:
        await _copy_once(ctx, source, target, live.generation, live.metadata)
    except NotFound:
        if await ctx.store.stat(source) is not None:
            return Fate.SUPERSEDED
        return Fate.GONE
    try:
        deleted = await ctx.store.delete(source, if_generation=live.generation)
    except PreconditionFailed:
        return Fate.SUPERSEDED
    return Fate.MOVED if deleted else Fate.GONE


async def _copy_once(
    ctx: ActionContext, source: ObjectRef, target: ObjectRef, generation: Generation, metadata: dict[str, str]
) -> None:
    added = marks(ctx, metadata, f"{source.bucket}/{source.name}#{generation}")
    condition = ABSENT
    while True:
        try:
            await ctx.store.copy(source, target, source_generation=generation, if_generation=condition, metadata=added)
        except PreconditionFailed:
            present = await ctx.store.stat(target)
            if present is None:
                condition = ABSENT
            elif all(present.metadata.get(mark) == added[mark] for mark in (EVENT_MARK, SOURCE_MARK)):
                return  # the first half was done before
            else:
                condition = present.generation  # an older file of that name makes way
        else:
            return


def _folder(url: str) -> ObjectRef:
    try:
        return ObjectRef.parse(url)
    except ValueError as error:
        raise BadInput(str(error)) from error
