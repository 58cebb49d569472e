"""What actions share that handle objects: what becomes of many of them, the marks that keep moved files from looping,
and files that a rule names, which are read only up to a size: anyone may have put them there.
"""

from collections import Counter as Counted
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from urllib.parse import quote, unquote

import structlog
from prometheus_client import Counter

from ingestd.actions.context import ActionContext, Step
from ingestd.model.errors import BadInput, IngestError, UnreadableObject
from ingestd.model.objects import ObjectRef

log = structlog.get_logger(__name__)

RULES_MARK = "ingestd-rules"
EVENT_MARK = "ingestd-event"
SOURCE_MARK = "ingestd-source"


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
    """The keys of the rules that have moved this object: none of them may ingest it again."""
    return {unquote(key) for key in metadata.get(RULES_MARK, "").split(",") if key}


def marks(ctx: ActionContext, metadata: Mapping[str, str], source_key: str) -> dict[str, str]:
    """What a moved object carries: who moved it (after earlier movers), for which batch, and what it was."""
    keys = sorted(loop_guard(metadata) | ({ctx.rule_key} if ctx.rule_key else set()))
    found = {EVENT_MARK: ctx.event_id, SOURCE_MARK: quote(source_key, safe="/#:.=@-_")}
    if keys:
        found[RULES_MARK] = ",".join(quote(key, safe="/:.#-_") for key in keys)
    return found
