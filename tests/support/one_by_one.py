"""`stat_all`, `delete_all` and `copy_all` of `ObjectStore`, made of the single calls.

For stores without a wire to save: each object is a step of its own, at which a simulation can strike.
"""

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from ingestd.model.errors import IngestError
from ingestd.model.objects import Generation, ObjectInfo, ObjectRef
from ingestd.ports import Copy, Deletion, ObjectStore

T = TypeVar("T")


class OneByOne:
    async def stat_all(self: ObjectStore, refs: Sequence[ObjectRef]) -> list[ObjectInfo | IngestError | None]:
        return [await _outcome(self.stat(ref)) for ref in refs]

    async def delete_all(self: ObjectStore, deletions: Sequence[Deletion]) -> list[bool | IngestError]:
        return [await _outcome(self.delete(one.ref, if_generation=one.generation)) for one in deletions]

    async def copy_all(self: ObjectStore, copies: Sequence[Copy]) -> list[Generation | IngestError]:
        return [
            await _outcome(
                self.copy(
                    one.source,
                    one.target,
                    source_generation=one.source_generation,
                    if_generation=one.if_generation,
                    metadata=one.metadata,
                )
            )
            for one in copies
        ]


async def _outcome(call: Awaitable[T]) -> T | IngestError:
    try:
        return await call
    except IngestError as error:
        return error
