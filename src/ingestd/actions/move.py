"""`move`: copy, then delete, both pinned to the generation that was loaded.

Repeating it is harmless: the copy is made only once per batch and source (a second copy would announce itself as a new
file to whoever watches the destination), and the delete knows a missing source. Objects are looked at, copied and
deleted together, but each goes on only when its own step before has succeeded:

| dies after   | what is there                   | moved again                                               |
|--------------|---------------------------------|-----------------------------------------------------------|
| looked       | the sources                     | as the first time                                         |
| some copied  | all sources, some marked copies | a copy that bears this batch's marks is not made again    |
| some deleted | some sources, all copies        | a source that is gone was moved (or deleted by its owner) |
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.objects import EVENT_MARK, SOURCE_MARK, Fate, counted, marks, refs
from ingestd.model.bounded import bounded
from ingestd.model.errors import BadInput, IngestError, NotFound, PreconditionFailed
from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.ports import Copy, Deletion
from ingestd.rules.actions import MoveRequest


@dataclass(slots=True)
class _Moving:
    """One object on its way; `fate` once it is known."""

    source: ObjectRef
    target: ObjectRef
    own: FileVersion | None
    generation: Generation = ABSENT
    metadata: dict[str, str] | None = None
    seen: ObjectInfo | None = None
    fate: Fate | IngestError | None = None
    spare: list[ObjectRef] = field(default_factory=list)  # where it goes instead, if something else is at its target

    def copy(self, condition: Generation = ABSENT) -> Copy:
        return Copy(self.source, self.target, self.generation, condition, self.metadata or {}, self.seen)


async def run(ctx: ActionContext, step: Step, request: MoveRequest) -> Outcome:
    sources = refs([*request.source_urls, *([request.source_url] if request.source_url else [])])
    if request.is_dest_absolute_url and len(sources) > 1:
        raise BadInput(f"{len(sources)} objects cannot all become {request.dest_url}; drop IsDestAbsoluteURL")
    (base,) = refs([request.dest_url]) if request.is_dest_absolute_url else (_folder(request.dest_url),)
    moving = [
        _Moving(source, base if request.is_dest_absolute_url else base / source.name, ctx.file_at(source))
        for source in sources
    ]
    return Outcome(details={"objects": counted(ctx, step, sources, await _move(ctx, moving))})


async def move_file(ctx: ActionContext, file: FileVersion, *targets: ObjectRef) -> tuple[Fate, ObjectRef]:
    """Move one pinned file to the first of these places that nothing else is at; a newer upload of it stays.

    What became of it, and where it was to go. What is at the last place makes way.
    """
    first, *spare = targets
    moving = _Moving(file.ref, first, file, spare=spare)
    (fate,) = await _move(ctx, [moving])
    if isinstance(fate, IngestError):
        raise fate
    return fate, moving.target


async def _move(ctx: ActionContext, moving: Sequence[_Moving]) -> list[Fate | IngestError]:
    """What became of each, in order."""
    for one in moving:
        if one.source == one.target:
            one.fate = BadInput(f"cannot move {one.source} onto itself")
    await _look(ctx, _left(moving))
    await _copy_once(ctx, _left(moving))
    copied = _left(moving)
    outcomes = await ctx.store.delete_all([Deletion(one.source, one.generation) for one in copied])
    for one, deleted in zip(copied, outcomes, strict=True):
        if isinstance(deleted, PreconditionFailed):
            one.fate = Fate.SUPERSEDED
        elif isinstance(deleted, IngestError):
            one.fate = deleted
        else:
            one.fate = Fate.MOVED if deleted else Fate.GONE
    return [one.fate for one in moving if one.fate is not None]


def _left(moving: Sequence[_Moving]) -> list[_Moving]:
    return [one for one in moving if one.fate is None]


async def _look(ctx: ActionContext, moving: Sequence[_Moving]) -> None:
    for one, live in zip(moving, await ctx.store.stat_all([one.source for one in moving]), strict=True):
        if live is None:
            one.fate = Fate.GONE
        elif isinstance(live, IngestError):
            one.fate = live
        elif one.own is not None and live.generation != one.own.generation:
            one.fate = Fate.SUPERSEDED
        else:
            key = f"{one.source.bucket}/{one.source.name}#{live.generation}"
            one.generation, one.metadata, one.seen = live.generation, marks(ctx, live.metadata, key), live


async def _copy_once(ctx: ActionContext, moving: Sequence[_Moving]) -> None:
    outcomes = await ctx.store.copy_all([one.copy() for one in moving])

    async def look_closer(item: tuple[_Moving, IngestError]) -> None:
        one, error = item
        try:
            await _mend(ctx, one, error)
        except IngestError as failure:
            one.fate = failure

    difficult = [
        (one, outcome) for one, outcome in zip(moving, outcomes, strict=True) if isinstance(outcome, IngestError)
    ]
    await bounded(difficult, look_closer, ctx.settings.max_concurrency)


async def _mend(ctx: ActionContext, one: _Moving, error: IngestError) -> None:
    """What a copy that was not made comes to; raises what it cannot come back from."""
    try:
        if not isinstance(error, PreconditionFailed):
            raise error
        await _copy_onto(ctx, one)
    except NotFound:
        live = await ctx.store.stat(one.source)
        if live is not None and live.generation == one.generation:
            raise  # it is not the source that is missing
        one.fate = Fate.GONE if live is None else Fate.SUPERSEDED


async def _copy_onto(ctx: ActionContext, one: _Moving) -> None:
    """Copy to where something is already."""
    wanted = one.metadata or {}
    while True:
        present: ObjectInfo | None = await ctx.store.stat(one.target)
        if present and all(present.metadata.get(mark) == wanted[mark] for mark in (EVENT_MARK, SOURCE_MARK)):
            return  # the first half was done before
        if present and one.spare:
            one.target = one.spare.pop(0)
            continue
        copy = one.copy(present.generation if present else ABSENT)  # an older file of that name makes way
        try:
            await ctx.store.copy(
                copy.source,
                copy.target,
                source_generation=copy.source_generation,
                if_generation=copy.if_generation,
                metadata=copy.metadata,
            )
        except PreconditionFailed:
            continue
        return


def _folder(url: str) -> ObjectRef:
    try:
        return ObjectRef.parse(url)
    except ValueError as error:
        raise BadInput(str(error)) from error
