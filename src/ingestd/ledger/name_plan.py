"""What is to be done about one table's index of names: decided by what its shelf has and what a listing tells."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from ingestd.batch.late import over
from ingestd.ledger.name_index import SKEW, LateMark, Shelf
from ingestd.ledger.name_segments import Batch, Segment
from ingestd.model.objects import ObjectInfo
from ingestd.model.stored import number

MOST_NAMES = 1_000_000  # of a segment, and of a day: some 60 MB of memory while it is made
_ENOUGH_RECORDS = 500
_ENOUGH_DAYS = 8
_DAY = timedelta(days=1)


@dataclass(slots=True)
class Listed:
    """Finished records of one table, by what listings tell of them."""

    end: date  # the last day that was listed, to its end
    records: dict[Batch, ObjectInfo] = field(default_factory=dict)
    odd: set[date] = field(default_factory=set)  # days with objects that are no records of ours

    @property
    def names(self) -> int:
        return sum(map(files_of, self.records.values()))

    def crowded(self) -> set[date]:
        """Days of more names than are held in memory."""
        files: dict[date, int] = {}
        for (day, _), info in self.records.items():
            files[day] = files.get(day, 0) + files_of(info)
        return {day for day, count in files.items() if count > MOST_NAMES}


@dataclass(slots=True)
class TablePlan:
    table: str
    shelf: Shelf
    today: date
    running: set[Batch]  # batches under way, as they were before anything finished was listed

    @property
    def last(self) -> date:
        """The last day that is over."""
        return over(self.today)

    def gaps(self, first: date) -> list[tuple[date, date]]:
        """Days that nobody has written down, though they are over: those before the last segment, oldest first.

        Segments follow each other without gaps; one that is missing was removed, or cannot be read.
        """
        found = []
        for one in sorted(self.shelf.segments, key=lambda one: one.first):
            if first < one.first:
                found.append((first, one.first - _DAY))
            first = max(first, one.last + _DAY)
        return found

    def tail(self, first: date) -> date:
        """The first of the days after the last segment."""
        return max((one.last + _DAY for one in self.shelf.segments), default=first)

    def within_others(self) -> list[Segment]:
        """Segments of days that a later one has, which was made from them."""
        segments = self.shelf.segments
        return [one for one in segments if any(_within(one, other) for other in segments)]

    def to_mend(self) -> list[Segment]:
        """Segments with days in which batches began after they were written."""
        settled = Shelf([], [mark for mark in self.shelf.marks if self._settled(mark)])
        return [one for one in self.shelf.segments if one.written < self.today and settled.stale(one)]

    def marks_over(self) -> list[LateMark]:
        """Marks of days that were all written down since, or were not written down at all when they were left."""
        return [
            mark
            for mark in self.shelf.marks
            if self._settled(mark) and not any(mark.day in self.shelf.stale(one) for one in self.shelf.segments)
        ]

    def _settled(self, mark: LateMark) -> bool:
        return mark.began + SKEW + _DAY < self.today

    def worth_it(self, tail: Listed) -> bool:
        """Whether what is not written down yet is enough for a segment: fewer are listed as fast."""
        oldest = min((day for day, _ in tail.records), default=self.last)
        return len(tail.records) >= _ENOUGH_RECORDS or (self.last - oldest).days >= _ENOUGH_DAYS

    def joined_with(self, names: int) -> list[Segment]:
        """The segments right before so many new names that become one with them, oldest first."""
        joined: list[Segment] = []
        for one in sorted(self.shelf.segments, key=lambda one: one.last, reverse=True):
            if one.names > 2 * names or one.names + names > MOST_NAMES:
                break
            joined.insert(0, one)
            names += one.names
        return joined

    def replace(self, gone: Sequence[Segment], *made: Segment) -> None:
        self.shelf.segments = [*(one for one in self.shelf.segments if one not in gone), *made]


def files_of(info: ObjectInfo) -> int:
    return max(1, number(info.metadata.get("ingestd-files")))


def _within(one: Segment, other: Segment) -> bool:
    later = (other.written, other.info.generation) > (one.written, one.info.generation)
    return later and other.first <= one.first and one.last <= other.last
