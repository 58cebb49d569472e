"""A subscription's messages: what is ready, what is leased, and what comes back when.

Invariants:
- Every unacknowledged message has exactly one `Entry` in `backlog`, in publish order.
- An entry is in exactly one place: the ready queue, a lease, a backoff, or (ordered subscriptions) behind an earlier
  message of its ordering key.
- With ordering, messages of one key are leased together in order, and no further ones until all of those are settled.
  When one comes back, the later ones of its key that were already delivered come back too, even acknowledged ones
  (as Google documents), except under exactly-once delivery.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Protocol

from ingestd.localcloud.faults import FaultKind, Hooks
from ingestd.localcloud.pubsub.entries import (
    NOTHING,
    Backoff,
    Counters,
    Entry,
    KeyQueue,
    LeaseBatch,
    Message,
    State,
    Store,
    Taken,
    Want,
    forget_older,
)
from ingestd.localcloud.pubsub.resources import Settings
from ingestd.localcloud.pubsub.schedule import Schedule
from ingestd.localcloud.pubsub.wire import received_piece

WITHHELD_SECONDS = 1.0  # how long a withheld message rests before the fault is looked at again


class Owner(Protocol):
    """What a queue needs of the core around it."""

    def monotonic(self) -> float: ...

    def became_ready(self, queue: "Queue") -> None: ...

    def dead_letter(self, queue: "Queue", entries: list[Entry], now: float) -> None:
        """Forward exhausted messages, or requeue them where that is impossible."""
        ...

    def remember_attempts(self, queue: "Queue", entries: list[Entry]) -> None: ...


class Queue:
    """The delivery half of a subscription. The core tells it what was published, taken and acknowledged."""

    def __init__(self, name: str, uid: int, settings: Settings, store: Store, schedule: Schedule, owner: Owner) -> None:
        self.name = name
        self.settings = settings
        self.backlog: dict[int, Entry] = {}
        self.retained: dict[int, Message] = {}  # acknowledged, kept for a seek
        self.ready: deque[Entry | KeyQueue] = deque()
        self.leases: dict[str, Entry] = {}
        self.keys: dict[str, KeyQueue] = {}
        self.counters = Counters()
        self.trim_due: int | None = None  # when the oldest message outlives the retention, in microseconds
        self.freed_capacity = False  # a stalled stream got room since the core last looked
        self._store = store
        self._schedule = schedule
        self._owner = owner
        self._ack_prefix = self._uid_prefix = f"{uid:x}-"
        self._deliveries = count(1)

    def begin(self, epoch: int) -> None:
        """From now on ack ids carry this epoch, so that those of an earlier run are told apart."""
        self._ack_prefix = f"{self._uid_prefix}{epoch:x}-"

    def offer(self, message: Message, attempts: int = 0) -> None:
        """A message to deliver (again)."""
        self._store.hold(message)
        entry = Entry(message, None)
        entry.attempts = attempts
        self.backlog[message.seq] = entry
        if self.trim_due is None:
            self.trim_due = message.published + self.settings.retention_us
        if self.settings.ordered and message.ordering_key:
            key = self.keys.get(message.ordering_key)
            if key is None:
                key = self.keys[message.ordering_key] = KeyQueue()
            entry.key = key
            key.entries.append(entry)
            if not key.queued and key.outstanding == 0:
                key.queued = True
                self.ready.append(key)
        else:
            self.ready.append(entry)

    def take(self, want: Want, now: float, hooks: Hooks) -> Taken:
        """Lease what `want` allows (at least one message, however large)."""
        ready = self.ready
        holder = want.holder
        limit, max_size = want.messages, want.size
        if holder is not None:
            limit = holder.room(limit)
            holder.stalled = limit <= 0
            if holder.max_bytes > 0:
                max_size = min(max_size, holder.max_bytes - holder.size)
        if not ready or limit <= 0:
            return NOTHING
        batch = LeaseBatch(self)
        taken = Taken([], batch.entries)
        faulty = bool(hooks.plan.active())
        while ready and len(taken.entries) < limit:
            item = ready.popleft()
            run: Iterable[Entry] = item.entries if type(item) is KeyQueue else (item,)  # type: ignore[assignment]
            before = len(taken.entries)
            full = False
            for entry in run:
                if entry.state is not State.READY:
                    continue
                size = len(entry.message.framed)
                if len(taken.entries) >= limit or (taken.entries and taken.size + size > max_size):
                    full = True
                    break
                fault = hooks.message_fault("deliver", self.name) if faulty else None
                if fault is FaultKind.WITHHOLD:
                    self._withhold(entry, now)
                    break
                if fault is FaultKind.DUPLICATE:
                    self._hand_out(entry, taken)
                self._hand_out(entry, taken)
                entry.state = State.LEASED
                entry.attempts += 1
                entry.batch = batch
                entry.holder = holder
                self.leases[entry.ack_id] = entry
                taken.entries.append(entry)
                taken.size += size
            if full and len(taken.entries) == before:
                ready.appendleft(item)
                break
            if type(item) is KeyQueue:
                item.queued = False
                item.outstanding = len(taken.entries) - before
                self._key_progress(item, now)
        if not taken.entries:
            return NOTHING
        batch.live = len(taken.entries)
        self._schedule.push(now + want.seconds, batch)
        self.counters.delivered += len(taken.pieces)
        if holder is not None:
            holder.messages += batch.live
            holder.size += taken.size
        return taken

    def resolve(self, ack_ids: Iterable[str], *, for_ack: bool) -> tuple[list[Entry], list[str], list[str]]:
        """The entries these ack ids name; the ids that are stale where that matters; the malformed ids.

        Google honours a late ack unless the subscription is exactly-once; a late change of a deadline has no effect.
        """
        found: list[Entry] = []
        stale: list[str] = []
        malformed: list[str] = []
        leases = self.leases
        for ack_id in ack_ids:
            entry = leases.get(ack_id)
            if entry is not None:
                found.append(entry)
                continue
            seq = self._seq_of(ack_id)
            if seq is None:
                malformed.append(ack_id)
            elif self.settings.exactly_once:
                stale.append(ack_id)
            elif for_ack and (entry := self.backlog.get(seq)) is not None:
                found.append(entry)
        return found, stale, malformed

    def ack(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.state is not State.ACKED:
                self.counters.acked += 1
                self._settle(entry, retain=self.settings.retain_acked)

    def extend(self, entries: Sequence[Entry], seconds: float, now: float) -> None:
        batch = LeaseBatch(self)
        for entry in entries:
            if entry.state is State.LEASED and entry.batch is not None and entry.batch is not batch:
                entry.batch.drop()
                entry.batch = batch
                batch.entries.append(entry)
        batch.live = len(batch.entries)
        if batch.live:
            self._schedule.push(now + seconds, batch)

    def nack(self, entries: Iterable[Entry], now: float) -> None:
        leased = [entry for entry in entries if entry.state is State.LEASED]
        self.counters.nacked += len(leased)
        self._give_back(leased, now)

    def expire(self, batch: LeaseBatch, now: float) -> None:
        overdue = [entry for entry in batch.entries if entry.batch is batch and entry.state is State.LEASED]
        self.counters.expired += len(overdue)
        self._give_back(overdue, now)

    def wake(self, item: Entry | KeyQueue) -> None:
        """A backoff is over."""
        if type(item) is KeyQueue:
            if item.entries:
                self.ready.append(item)
            else:
                item.queued = False
        elif item.state is State.PARKED:  # type: ignore[union-attr]
            item.state = State.READY  # type: ignore[union-attr]
            self.ready.append(item)
        self._owner.became_ready(self)

    def drop_dead_lettered(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.counters.dead_lettered += 1
            self._settle(entry, retain=False)

    def requeue(self, entries: Iterable[Entry], now: float) -> None:
        """Deliver again, after the retry policy's backoff."""
        for entry in entries:
            backoff = self.settings.backoff(entry.attempts)
            key = entry.key
            if key is not None:
                entry.state = State.READY
                key.not_before = max(key.not_before, now + backoff)
                self._key_progress(key, now)
            elif backoff > 0:
                entry.state = State.PARKED
                self._schedule.push(now + backoff, Backoff(self, entry))
            else:
                entry.state = State.READY
                self.ready.append(entry)

    def trim(self, now_us: int) -> None:
        """Forget what has outlived the retention."""
        horizon = now_us - self.settings.retention_us
        expired: list[Entry] = []
        for entry in self.backlog.values():
            if entry.message.published > horizon:
                break
            expired.append(entry)
        for entry in expired:
            self.counters.dropped_by_retention += 1
            self._settle(entry, retain=False)
        forget_older(self.retained, horizon, self._store)
        # Nobody may be pulling: what is dead at the front of the ready queue must not keep its bytes.
        while self.ready and type(front := self.ready[0]) is Entry and front.state is not State.READY:
            self.ready.popleft()
        oldest = next(iter(self.backlog.values()), None)
        self.trim_due = None if oldest is None else oldest.message.published + self.settings.retention_us

    def reset(self, messages: Iterable[Message]) -> None:
        """Make the backlog exactly these messages (in publish order), all of them unleased: what a seek does."""
        wanted = {message.seq: message for message in messages}
        for message in wanted.values():
            self._store.hold(message)  # so that nothing dies between leaving the old backlog and entering the new
        for entry in list(self.backlog.values()):
            if entry.state is State.LEASED:
                self._end_lease(entry)
            entry.state = State.ACKED
            if self.settings.retain_acked and entry.message.seq not in wanted:
                self._retain(entry.message)
            self._store.release(entry.message)
        self.backlog.clear()
        self.ready.clear()
        self.keys.clear()
        self.trim_due = None
        for message in wanted.values():
            if self.retained.pop(message.seq, None) is not None:
                self._store.release(message)
            self.offer(message)
            self._store.release(message)

    def restore_retained(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._retain(message)

    def clear(self) -> None:
        """Let go of everything: the subscription is deleted or detached."""
        self.reset(())
        for message in self.retained.values():
            self._store.release(message)
        self.retained.clear()

    @property
    def outstanding(self) -> int:
        return len(self.leases)

    def unacked(self) -> list[Entry]:
        return [entry for entry in self.backlog.values() if entry.state is not State.ACKED]

    def _seq_of(self, ack_id: str) -> int | None:
        parts = ack_id.split("-")
        if len(parts) != 4 or not ack_id.startswith(self._uid_prefix):
            return None
        try:
            return int(parts[2], 16)
        except ValueError:
            return None

    def _hand_out(self, entry: Entry, taken: Taken) -> None:
        message = entry.message
        entry.ack_id = f"{self._ack_prefix}{message.seq:x}-{next(self._deliveries):x}"
        attempt = entry.attempts + 1 if self.settings.max_delivery_attempts else 0
        taken.pieces.append(received_piece(entry.ack_id, message.framed, attempt))

    def _retain(self, message: Message) -> None:
        if message.seq not in self.retained:
            self._store.hold(message)
            self.retained[message.seq] = message

    def _withhold(self, entry: Entry, now: float) -> None:
        if entry.key is not None:
            entry.key.not_before = now + WITHHELD_SECONDS
        else:
            entry.state = State.PARKED
            self._schedule.push(now + WITHHELD_SECONDS, Backoff(self, entry))

    def _end_lease(self, entry: Entry) -> None:
        del self.leases[entry.ack_id]
        assert entry.batch is not None
        entry.batch.drop()
        entry.batch = None
        holder = entry.holder
        if holder is not None:
            holder.messages -= 1
            holder.size -= len(entry.message.framed)
            if holder.stalled:
                self.freed_capacity = True
            entry.holder = None
        if entry.key is not None:
            entry.key.outstanding -= 1

    def _settle(self, entry: Entry, *, retain: bool) -> None:
        if entry.state is State.LEASED:
            self._end_lease(entry)
        entry.state = State.ACKED
        key = entry.key
        if key is None:
            self._forget(entry, retain)
            return
        # Acknowledged before an earlier one of its key: it stays, since the earlier one's return replays it.
        while key.entries and key.entries[0].state is State.ACKED:
            self._forget(key.entries.popleft(), retain)
        if not key.entries:
            self.keys.pop(entry.message.ordering_key, None)
        else:
            self._key_progress(key, self._owner.monotonic())

    def _forget(self, entry: Entry, retain: bool) -> None:
        message = entry.message
        del self.backlog[message.seq]
        if retain:
            self._retain(message)
        self._store.release(message)

    def _give_back(self, entries: Sequence[Entry], now: float) -> None:
        returned: list[Entry] = []
        followers: list[Entry] = []
        for entry in entries:
            if entry.state is not State.LEASED:
                continue  # it came back with an earlier message of its key
            self._end_lease(entry)
            entry.state = State.PARKED
            returned.append(entry)
            if entry.key is not None:
                followers += self._revoke_followers(entry)
        limit = self.settings.max_delivery_attempts
        exhausted = [entry for entry in returned if limit and entry.attempts >= limit]
        if exhausted:
            self._owner.dead_letter(self, exhausted, now)
            returned = [entry for entry in returned if entry.attempts < limit]
        self.requeue(returned, now)
        if limit and (tried := returned + followers):
            self._owner.remember_attempts(self, tried)
        self._owner.became_ready(self)

    def _revoke_followers(self, entry: Entry) -> list[Entry]:
        """Take back the later ones of its key; what was delivered is always the front of the key's queue."""
        assert entry.key is not None
        revoked: list[Entry] = []
        behind = False
        for later in entry.key.entries:
            if later is entry:
                behind = True
            elif not behind:
                continue
            elif later.state is State.LEASED:
                self._end_lease(later)
                later.state = State.READY
                revoked.append(later)
            elif later.state is State.ACKED and not self.settings.exactly_once:
                later.state = State.READY
            elif later.state is State.READY:
                break
        return revoked

    def _key_progress(self, key: KeyQueue, now: float) -> None:
        """Queue the key when nothing of it is outstanding and something is left."""
        if key.queued or key.outstanding or not key.entries:
            return
        key.queued = True
        if key.not_before > now:
            self._schedule.push(key.not_before, Backoff(self, key))
        else:
            self.ready.append(key)
