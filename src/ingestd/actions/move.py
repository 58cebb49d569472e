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
from ingestd.actions.objects import EVENT_MARK, MANY_OBJECTS, SOURCE_MARK, Fate, aimed, counted, marks, refs
from ingestd.model.aside import aside
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
    moving = await aside(len(request.source_urls) > MANY_OBJECTS, _planned, ctx, request)
    await _move(ctx, moving)
    return await aside(_many(moving), _outcome, ctx, step, moving)


def _planned(ctx: ActionContext, request: MoveRequest) -> list[_Moving]:
    sources = refs([*request.source_urls, *([request.source_url] if request.source_url else [])])
    if request.is_dest_absolute_url and len(sources) > 1:
        raise BadInput(f"{len(sources)} objects cannot all become {request.dest_url}; drop IsDestAbsoluteURL")
    (base,) = refs([request.dest_url]) if request.is_dest_absolute_url else (_folder(request.dest_url),)
    moving = [
        _Moving(source, base if request.is_dest_absolute_url else base / source.name, ctx.file_at(source))
        for source in sources
    ]
    for one in moving:
        if one.source == one.target:
            one.fate = BadInput(f"cannot move {one.source} onto itself")
    return moving


def _outcome(ctx: ActionContext, step: Step, moving: Sequence[_Moving]) -> Outcome:
    objects = [one.source for one in moving]
    return Outcome(
        details={"objects": counted(ctx, step, objects, [one.fate for one in moving if one.fate is not None])}
    )


def _many(moving: Sequence[_Moving]) -> bool:
    """Whether they are gone through beside the event loop; meanwhile nobody else looks at them."""
    return len(moving) > MANY_OBJECTS


async def move_file(ctx: ActionContext, file: FileVersion, *targets: ObjectRef) -> tuple[Fate, ObjectRef]:
    """Move one pinned file to the first of these places that nothing else is at; a newer upload of it stays.

    What became of it, and where it was to go. What is at the last place makes way.
    """
    first, *spare = targets
    one = _Moving(file.ref, first, file, spare=spare)
    if one.source == one.target:
        raise BadInput(f"cannot move {one.source} onto itself")
    await _move(ctx, [one])
    if isinstance(one.fate, IngestError):
        raise one.fate
    assert one.fate is not None
    return one.fate, one.target


async def _move(ctx: ActionContext, moving: Sequence[_Moving]) -> None:
    """Bring each to its fate."""
    many = _many(moving)
    looked = await aside(many, _left, moving)
    found = await ctx.store.stat_all(await aside(many, _sources, looked))
    await aside(many, _look, ctx, looked, found)
    await _copy_once(ctx, await aside(many, _left, looked))
    copied = await aside(many, _left, looked)
    outcomes = await ctx.store.delete_all(await aside(many, _deletions, copied))
    await aside(many, _end, copied, outcomes)


def _left(moving: Sequence[_Moving]) -> list[_Moving]:
    return [one for one in moving if one.fate is None]


def _sources(moving: Sequence[_Moving]) -> list[ObjectRef]:
    return [one.source for one in moving]


def _deletions(copied: Sequence[_Moving]) -> list[Deletion]:
    return [Deletion(one.source, one.generation) for one in copied]


def _end(copied: Sequence[_Moving], outcomes: Sequence[bool | IngestError]) -> None:
    for one, deleted in zip(copied, outcomes, strict=True):
        if isinstance(deleted, PreconditionFailed):
            one.fate = Fate.SUPERSEDED
        elif isinstance(deleted, IngestError):
            one.fate = deleted
        else:
            one.fate = Fate.MOVED if deleted else Fate.GONE


def _look(ctx: ActionContext, moving: Sequence[_Moving], found: Sequence[ObjectInfo | IngestError | None]) -> None:
    for one, live in zip(moving, found, strict=True):
        if live is None:
            one.fate = Fate.GONE
        elif isinstance(live, IngestError):
            one.fate = live
        elif one.own is not None and live.generation != one.own.generation:
            one.fate = Fate.SUPERSEDED
        else:
            key = f"{one.source.bucket}/{one.source.name}#{live.generation}"
            one.generation, one.metadata, one.seen = live.generation, marks(ctx, live, key, one.target), live


async def _copy_once(ctx: ActionContext, moving: Sequence[_Moving]) -> None:
    many = _many(moving)
    outcomes = await ctx.store.copy_all(await aside(many, _copies, moving))

    async def look_closer(item: tuple[_Moving, IngestError]) -> None:
        one, error = item
        try:
            await _mend(ctx, one, error)
        except IngestError as failure:
            one.fate = failure

    difficult = await aside(many, _difficult, moving, outcomes)
    await bounded(difficult, look_closer, ctx.settings.max_concurrency)


def _copies(moving: Sequence[_Moving]) -> list[Copy]:
    return [one.copy() for one in moving]


def _difficult(
    moving: Sequence[_Moving], outcomes: Sequence[Generation | IngestError]
) -> list[tuple[_Moving, IngestError]]:
    return [(one, outcome) for one, outcome in zip(moving, outcomes, strict=True) if isinstance(outcome, IngestError)]


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
            one.metadata = aimed(wanted, one.target)
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
