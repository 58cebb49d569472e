"""What actions share that handle objects: what becomes of many of them, the marks that keep moved files from looping,
and files that a rule names, which are read only up to a size: anyone may have put them there.
"""

from collections import Counter as Counted
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from urllib.parse import quote, unquote

import structlog
from prometheus_client import Counter

from ingestd.actions.context import ActionContext, Step
from ingestd.model.errors import BadInput, IngestError, UnreadableObject
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.rules.names import place_key

log = structlog.get_logger(__name__)

RULES_MARK = "ingestd-rules"
EVENT_MARK = "ingestd-event"
SOURCE_MARK = "ingestd-source"
TARGET_MARK = "ingestd-target"


MANY_OBJECTS = 20_000  # of an action: from there on they are gone through beside the event loop


class Fate(StrEnum):
    """What became of one object."""

    DELETED = "deleted"
    MOVED = "moved"
    GONE = "gone"  # it was not there any more
    SUPERSEDED = "superseded"  # a newer upload has taken the name: not ours to touch


OBJECTS = Counter("ingestd_action_objects", "Objects that post-actions handled, by fate.", ["action", "fate"])
for _action, _fates in {"delete": (Fate.DELETED,), "move": (Fate.MOVED,)}.items():
    for _fate in (*_fates, Fate.GONE, Fate.SUPERSEDED):
        OBJECTS.labels(_action, _fate)


def refs(urls: Iterable[str]) -> list[ObjectRef]:
    """The objects these URLs name, each once, in order."""
    found: dict[ObjectRef, None] = {}
    for url in urls:
        try:
            ref = ObjectRef.parse(url)
        except ValueError as error:
            raise BadInput(str(error)) from error
        if not ref.name:
            raise BadInput(f"{url!r} names a bucket, not an object")
        found[ref] = None
    return list(found)


async def content_of(ctx: ActionContext, ref: ObjectRef, what: str, *, largest: int) -> bytes:
    """The object's bytes, unless it has more than `largest`: then the action fails, and says so."""
    try:
        data, _ = await ctx.store.read(ref, largest=largest)
    except UnreadableObject as error:
        raise BadInput(f"{what}: {error}") from error
    return data


def counted(
    ctx: ActionContext, step: Step, objects: Sequence[ObjectRef], outcomes: Sequence[Fate | IngestError]
) -> dict[str, int]:
    """What became of the objects, counted. All had their turn; the first failure is raised now."""
    # Most are alike, and may be very many: those that are not are looked at one by one.
    tally = Counted(one for one in outcomes if not isinstance(one, IngestError))
    counts = {str(fate): count for fate, count in tally.items()}  # plain text, since it is logged
    if Fate.SUPERSEDED in tally:
        for ref, fate in zip(objects, outcomes, strict=True):
            if fate is Fate.SUPERSEDED:
                log.warning("action.object_superseded", action=step.action, object=ref.url, event_id=ctx.event_id)
    failures = [one for one in outcomes if isinstance(one, IngestError)] if tally.total() < len(outcomes) else []
    for word, count in counts.items():
        OBJECTS.labels(step.action, word).inc(count)
    if failures:
        raise failures[0]
    return counts


def loop_guard(metadata: Mapping[str, str]) -> set[str]:
    """The keys of the rules that have moved this object, or what it is a copy of."""
    return {unquote(key) for key in metadata.get(RULES_MARK, "").split(",") if key}


def marks(ctx: ActionContext, info: ObjectInfo | None, source_key: str, target: ObjectRef) -> dict[str, str]:
    """What a moved object carries: who moved it (after earlier movers), for which batch, what it was, and where to.

    `info` is what it was, whose metadata goes along: None for an object that has none from before.
    """
    keys = sorted((movers(info) if info else set()) | _keys(ctx))
    found = {EVENT_MARK: ctx.event_id, SOURCE_MARK: quote(source_key, safe="/#:.=@-_")}
    found[TARGET_MARK] = _target(found, target)
    if keys or (info and RULES_MARK in info.metadata):  # of those that count no more, nothing is carried on
        found[RULES_MARK] = ",".join(quote(key, safe="/:.#-_") for key in keys)
    return found


def _keys(ctx: ActionContext) -> set[str]:
    """The rule's name, by which an earlier version knows it, and what stays when that changes."""
    url = ctx.values.get("RuleURL")
    placed = {place_key(ctx.rule_key, url)} if isinstance(url, str) and url else set()
    return {ctx.rule_key, *placed} if ctx.rule_key else set()


def aimed(marked: Mapping[str, str], target: ObjectRef) -> dict[str, str]:
    """The same marks for an object that goes elsewhere."""
    return {**marked, TARGET_MARK: _target(marked, target)}


def moved_here(info: ObjectInfo) -> bool:
    """Whether the object lies where its last move has put it, as far as its marks tell.

    Copies keep marks, whoever makes them: a file that somebody has put back, or anywhere else, bears those of the move
    before, and is a file like any other.

    | the mark of the target             | then                                                               |
    |------------------------------------|--------------------------------------------------------------------|
    | is of the move that the others     | it tells                                                           |
    | tell of                            |                                                                    |
    | is missing: a version that does    | it was, except where the source lay: somebody has put it back      |
    | not write it moved the object      |                                                                    |
    | is of a move before: such a        | the same: that version writes the others anew, and carries this on |
    | version moved the object again     |                                                                    |
    """
    if tells_target(info):
        return info.metadata[TARGET_MARK].partition(".")[2] == _digest(_place(info.ref))
    return unquote(info.metadata.get(SOURCE_MARK, "")).rpartition("#")[0] != _place(info.ref)


def movers(info: ObjectInfo) -> set[str]:
    """The keys of the rules that have moved this object to where it lies: none of them may ingest it again."""
    keys = loop_guard(info.metadata)
    return keys if keys and moved_here(info) else set()


def tells_target(info: ObjectInfo) -> bool:
    """Whether the marks say where the last move went; those of an earlier version do not."""
    return info.metadata.get(TARGET_MARK, "").partition(".")[0] == _digest(_move(info.metadata))


def _target(marked: Mapping[str, str], target: ObjectRef) -> str:
    """Digests: a name of 1,024 bytes may be three times as long when quoted, and all metadata together has 8 KiB."""
    return f"{_digest(_move(marked))}.{_digest(_place(target))}"


def _move(marked: Mapping[str, str]) -> str:
    """What names a move: its batch, and the object that it moved."""
    return f"{marked.get(EVENT_MARK, '')}\n{marked.get(SOURCE_MARK, '')}"


def _place(ref: ObjectRef) -> str:
    return f"{ref.bucket}/{ref.name}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
