"""Many objects in few requests: what `ObjectStore` does to one object, done to many, with an outcome for each.

Invariants: every delete and copy carries its own generations, as a single one does. An object's outcome is what the
service said about that object: what passed stays passed, what the service was too busy for (and that alone) is asked
again, and what needs more than one answer (a lost race, a long copy) is left to the single call. Nothing depends on the
batch as a whole: when it dies in the middle, asking again for all of it is harmless, as it is for each.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

import orjson

from ingestd.gcp.errors import translated
from ingestd.gcp.multicall import MOST, Answer, Call, Multicall, object_path
from ingestd.gcp.threads import Threads
from ingestd.model.bounded import bounded
from ingestd.model.errors import IngestError
from ingestd.model.objects import Generation, ObjectRef
from ingestd.ports import Copy, Deletion
from ingestd.retry import Retrier, worth_retrying

_AT_ONCE = 4  # requests, of a hundred calls each
_SINGLES_AT_ONCE = 8

Item = TypeVar("Item")
T = TypeVar("T")


class _Alone(Enum):
    ALONE = "alone"


ALONE: Final = _Alone.ALONE  # as an outcome: the single call has to find out


class Referring(Protocol):
    @property
    def ref(self) -> ObjectRef: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """An object to look at, in a generation or as it is."""

    ref: ObjectRef
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A copy, and the description that its target gets; empty: the source's own."""

    copy: Copy
    resource: dict[str, Any]

    @property
    def ref(self) -> ObjectRef:
        return self.copy.target


Single = Callable[[Item, bool], Awaitable[T]]


class Bulk:
    def __init__(self, calls: Multicall, threads: Threads, retrier: Retrier) -> None:
        self._calls = calls
        self._threads = threads
        self._retrier = retrier

    async def describe(
        self, asked: Sequence[Asked], single: "Single[Asked, dict[str, Any] | None]"
    ) -> "list[dict[str, Any] | IngestError | None]":
        def call(one: Asked) -> Call:
            return Call("GET", object_path(one.ref, generation=one.generation))

        def outcome(one: Asked, answer: Answer, _again: bool) -> "dict[str, Any] | _Alone | None":
            if answer.status == 404 and not missing_bucket(answer.message):
                return None
            _raise_failed("stat", one, answer)
            document = answer.document
            return document if "generation" in document else ALONE

        return await self._each("stat", asked, call, outcome, single)

    async def delete(
        self, deletions: Sequence[Deletion], single: "Single[Deletion, bool]"
    ) -> "list[bool | IngestError]":
        def call(one: Deletion) -> Call:
            return Call("DELETE", object_path(one.ref, ifGenerationMatch=one.generation))

        def outcome(one: Deletion, answer: Answer, _again: bool) -> "bool | _Alone":
            if answer.status == 404 and not missing_bucket(answer.message):
                return False
            if answer.status == 412:
                return ALONE  # superseded, or gone: services differ in what they say of the latter
            _raise_failed("delete", one, answer)
            return True

        return await self._each("delete", deletions, call, outcome, single)

    async def rewrite(
        self, rewrites: Sequence[Rewrite], single: "Single[Rewrite, Generation]"
    ) -> "list[Generation | IngestError]":
        def call(one: Rewrite) -> Call:
            copy = one.copy
            source = object_path(copy.source)
            target = object_path(copy.target).removeprefix("/storage/v1")
            condition = "" if copy.if_generation is None else f"&ifGenerationMatch={copy.if_generation}"
            path = f"{source}/rewriteTo{target}?sourceGeneration={copy.source_generation}{condition}"
            return Call("POST", path, orjson.dumps(one.resource) if one.resource else b"")

        def outcome(one: Rewrite, answer: Answer, again: bool) -> "Generation | _Alone":
            if answer.status == 412 and again:
                return ALONE  # perhaps by our own copy, whose answer was lost
            _raise_failed("copy", one, answer)
            document = answer.document
            made = document.get("resource")
            if not document.get("done") or not isinstance(made, dict) or "generation" not in made:
                return ALONE  # a large one, which takes several calls
            return Generation(int(made["generation"]))

        return await self._each("copy", rewrites, call, outcome, single)

    async def _each(
        self,
        operation: str,
        items: "Sequence[Item]",
        call: "Callable[[Item], Call]",
        outcome: "Callable[[Item, Answer, bool], T | _Alone]",
        single: "Single[Item, T]",
    ) -> "list[T | IngestError]":
        async def some(chunk: "Sequence[Item]") -> "list[T | IngestError]":
            return await _Chunk(self, operation, chunk, call, outcome, single).outcomes()

        chunks = [items[first : first + MOST] for first in range(0, len(items), MOST)]
        found = await bounded(chunks, some, _AT_ONCE)
        return [one for part in found for one in part]

    async def send(self, operation: str, resource: str, calls: Sequence[Call]) -> list[Answer]:
        def sent() -> list[Answer]:
            with translated(f"{operation} {len(calls)} objects, the first", resource):
                return self._calls.send(calls)

        return await self._threads.run(sent)

    async def retried(self, attempt: Callable[[], Awaitable[None]], operation: str, resource: str) -> None:
        await self._retrier.call(attempt, f"storage.{operation}_all", resource=resource)


class _Chunk:
    """At most a hundred objects: asked together, until each has its outcome."""

    def __init__(
        self,
        bulk: Bulk,
        operation: str,
        items: "Sequence[Any]",
        call: "Callable[[Any], Call]",
        outcome: "Callable[[Any, Answer, bool], Any]",
        single: "Single[Any, Any]",
    ) -> None:
        self._bulk = bulk
        self._operation = operation
        self._items = items
        self._call = call
        self._outcome = outcome
        self._single = single
        self._outcomes: dict[int, Any] = {}
        self._left = list(range(len(items)))
        self._sent = 0

    async def outcomes(self) -> list[Any]:
        first = self._items[0].ref.url
        try:
            await self._bulk.retried(self._ask, self._operation, first)
        except IngestError as error:
            # Refused as a whole (no such endpoint, no permission for it): each is asked on its own.
            alone = not worth_retrying(error) and all(number not in self._outcomes for number in self._left)
            for number in self._left:
                self._outcomes[number] = ALONE if alone else self._outcomes.get(number, error)
        await bounded([n for n, found in self._outcomes.items() if found is ALONE], self._by_itself, _SINGLES_AT_ONCE)
        return [self._outcomes[number] for number in range(len(self._items))]

    async def _ask(self) -> None:
        """Send what is left; raises what is worth another attempt, for those that are left then."""
        asked = [self._items[number] for number in self._left]
        self._sent += 1
        answers = await self._bulk.send(self._operation, asked[0].ref.url, [self._call(item) for item in asked])
        again: list[int] = []
        for number, item, answer in zip(self._left, asked, answers, strict=True):
            try:
                self._outcomes[number] = self._outcome(item, answer, self._sent > 1)
            except IngestError as error:
                self._outcomes[number] = error
                if worth_retrying(error):
                    again.append(number)
        self._left = again
        if again:
            raise self._outcomes[again[0]]

    async def _by_itself(self, number: int) -> None:
        try:
            self._outcomes[number] = await self._single(self._items[number], self._sent > 1)
        except IngestError as error:
            self._outcomes[number] = error


def _raise_failed(doing: str, item: Referring, answer: Answer) -> None:
    if not 200 <= answer.status < 300:
        raise answer.error(doing, item.ref)


def missing_bucket(message: str) -> bool:
    """A missing object is an answer; a missing bucket is a mistake in the surroundings."""
    return "bucket does not exist" in message.lower()
