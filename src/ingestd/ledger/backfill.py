"""What exists against what is known: the files that nobody has loaded, and getting them loaded.

One listing in name order, looked up in chunks (see `known`), so that a bucket of millions takes no more memory than one
of thousands. `ingestd backfill` does it once for people, `sweep` again and again for notifications that got lost.
Everything it does may be repeated: a file that is announced twice is loaded once.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime

from ingestd.ledger.announcing import Announcer, Told
from ingestd.ledger.known import Candidate, KnownFiles, Standing
from ingestd.ledger.outcome import Outcome
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.ports import ObjectStore
from ingestd.rules.matching import Ambiguous, Match, Routing

_CHUNK = 2_000
_SHOWN = 20

Select = Callable[[ObjectInfo], Candidate | None]


@dataclass(slots=True)
class Account:
    """How a prefix stands: every object in exactly one count."""

    objects: int = 0
    others: int = 0  # nothing wants them
    young: int = 0  # outside the time that was asked for
    standings: dict[Standing, int] = field(default_factory=lambda: dict.fromkeys(Standing, 0))
    size: int = 0  # bytes of what is missing
    examples: list[str] = field(default_factory=list)
    told: Told = field(default_factory=Told)
    outcome: Outcome | None = None  # of what was taken, where the same process loads it

    @property
    def missing(self) -> int:
        return self.standings[Standing.UNKNOWN]

    def to_json(self) -> dict[str, object]:
        return {
            "objects": self.objects,
            "others": self.others,
            "outside": self.young,
            **{str(standing): number for standing, number in self.standings.items() if standing != Standing.UNKNOWN},
            "missing": self.missing,
            "missing_bytes": self.size,
            "examples": self.examples,
            "announced": self.told.taken,
            "returned": self.told.returned,
            **({"outcome": self.outcome.to_json(self.told.taken)} if self.outcome else {}),
        }


@dataclass(frozen=True, slots=True)
class Period:
    """Objects created in this time; None: without bound."""

    after: datetime | None = None
    until: datetime | None = None

    def __contains__(self, moment: datetime) -> bool:
        return (self.after is None or moment > self.after) and (self.until is None or moment <= self.until)


class Backfill:
    def __init__(self, store: ObjectStore, known: KnownFiles, select: Select) -> None:
        self._store = store
        self._known = known
        self._select = select

    async def run(
        self,
        prefix: ObjectRef,
        announcer: Announcer | None,
        *,
        period: Period | None = None,
        limit: int | None = None,
        progress: Callable[[Account], None] | None = None,
    ) -> Account:
        """Look through the prefix and announce what is missing; without an announcer, only look.

        `limit` bounds what is announced; looking stops there.
        """
        account = Account()
        async for chunk in self._chunks(prefix, period or Period(), account):
            missing = await self._missing(chunk, account)
            if announcer is not None:
                room = len(missing) if limit is None else limit - account.told.taken
                account.told += await announcer.announce(missing[:room])
            if progress is not None:
                progress(account)
            if limit is not None and account.told.taken >= limit:
                break
        if progress is not None:
            progress(account)
        return account

    async def _chunks(self, prefix: ObjectRef, period: Period, account: Account) -> AsyncIterator[list[Candidate]]:
        chunk: list[Candidate] = []
        async for info in self._store.list(prefix):
            account.objects += 1
            candidate = self._select(info)
            if candidate is None:
                account.others += 1
            elif info.created not in period:
                account.young += 1
            else:
                chunk.append(candidate)
            if len(chunk) >= _CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    async def _missing(self, chunk: list[Candidate], account: Account) -> list[ObjectInfo]:
        missing: list[ObjectInfo] = []
        for candidate, standing in zip(chunk, await self._known.look_up(chunk), strict=True):
            account.standings[standing] += 1
            if standing is Standing.UNKNOWN:
                missing.append(candidate.info)
                account.size += candidate.info.size
                if len(account.examples) < _SHOWN:
                    account.examples.append(candidate.info.ref.url)
        return missing


def by_rules(route: Callable[[str], Routing], succeeded: Callable[[ObjectRef], bool]) -> Select:
    """Files that a rule wants, and success files."""

    def select(info: ObjectInfo) -> Candidate | None:
        if info.ref.name.endswith("/"):
            return None  # a folder's marker
        if succeeded(info.ref):
            return Candidate(info)
        routing = route(info.ref.name)
        if isinstance(routing, Match):
            return Candidate(info, routing.rule)
        if isinstance(routing, Ambiguous):
            return Candidate(info, routing.rules[0])
        return None

    return select


def by_name(name: str) -> Select:
    """Success files of this name, and nothing else."""

    def select(info: ObjectInfo) -> Candidate | None:
        return Candidate(info) if info.ref.name.rpartition("/")[2] == name else None

    return select
