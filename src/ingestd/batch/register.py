"""The register: which batch has which file, whatever the batch is called.

A file's generation goes to a table once. Its record's name cannot tell that alone: it follows from the window, and the
window from the rule's file, its duration, the pace of the table… all of which change while messages are under way. So
before a batch loads anything it enters its files here, under what cannot change: the table as BigQuery names it and the
hour of the generation. A file that another batch entered before is that batch's, and is left out.

    <JournalURL>/register/<project.dataset.table>/<hour>/<number>.json

Pages of one table and hour are numbered without gaps, created once and never changed, so they are a log: whoever
creates page n has read all pages before it. What stays true:

- A file belongs to the batch that entered it first, for ever; entering it again changes nothing.
- A batch has its record before it enters its files. So a file that is found here is in a record, and a message about it
  may go.

| dies after         | what is there        | then                                                              |
|--------------------|----------------------|-------------------------------------------------------------------|
| record created     | record               | whoever goes on enters the files; others may have done so before  |
| page created       | record, page         | whoever goes on finds the page to be its own                      |
| answer lost        | record, page         | creating it again is refused; the page is read, and is its own    |

Costs: one write per batch and hour of its files (batches that begin together share pages), one listing per table and
hour and process. A page is read only if it may hold a wanted file, which its listing tells by generations and folders:
so finding a file takes one listing and mostly one read, however old it is.
"""

import asyncio
import re
from base64 import b64decode, b64encode
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import orjson
import structlog
from prometheus_client import Counter

from ingestd.model.aside import aside
from ingestd.model.errors import NewerVersion, NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.objects import ABSENT, FileVersion, ObjectInfo, ObjectRef, digest, generation_time
from ingestd.model.segments import segment
from ingestd.model.stored import LARGEST_LIST, document, reading
from ingestd.model.tables import TableName
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)

PAGES = Counter("ingestd_register_pages_written", "Pages of the register written: about one per batch.")
DOUBLE = Counter("ingestd_register_files_known", "Files of batches that another batch had entered before.")
JUNK = Counter("ingestd_register_junk", "Objects in the register that are no pages of it, and were passed over.")

SCHEMA_VERSION = 1
_PAGE = re.compile(r"(\d{6,})\.json")
_DIGEST = 16  # bytes
_FOLDERS = 200  # named on a page: metadata of an object takes 8 KiB at most
_LOGS = 1_000  # tables and hours remembered
_CACHED = 16 * 2**20  # bytes of pages kept in memory
_FEW = 8
_HOUR = 3_600_000_000  # microseconds, which generations are
_MANY_FILES = 20_000  # from which on they are entered and looked for beside the event loop


@dataclass(frozen=True, slots=True)
class Span:
    """Where files are to be looked for: the range of their generations, and their folders (None: any)."""

    low: int
    high: int
    folders: frozenset[str] | None

    def touches(self, other: "Span") -> bool:
        if self.high < other.low or other.high < self.low:
            return False
        return self.folders is None or other.folders is None or not self.folders.isdisjoint(other.folders)

    def to_metadata(self) -> dict[str, str]:
        marks = {"ingestd-generations": f"{self.low}-{self.high}"}
        return marks if self.folders is None else {**marks, "ingestd-folders": " ".join(sorted(self.folders))}

    @classmethod
    def of(cls, info: ObjectInfo) -> "Span":
        low, _, high = info.metadata.get("ingestd-generations", "").partition("-")
        if not low.isdigit() or not high.isdigit():
            return EVERYWHERE
        folders = info.metadata.get("ingestd-folders")
        return cls(int(low), int(high), None if folders is None else frozenset(folders.split()))


EVERYWHERE = Span(0, 2**63, None)


@dataclass(frozen=True, slots=True)
class _Page:
    number: int
    span: Span


@dataclass(slots=True, eq=False)
class _Entry:
    """What one batch asks for, and who has what of it."""

    batch: str  # empty: only asking
    files: list[bytes]
    span: Span
    holders: dict[bytes, str] = field(default_factory=dict)
    settled: bool = False


@dataclass(slots=True)
class _Log:
    """The pages of one table and hour, as far as this process knows them."""

    folder: ObjectRef
    pages: list[_Page] = field(default_factory=list)
    listed: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Entry] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.pages[-1].number + 1 if self.pages else 0

    def page(self, number: int) -> ObjectRef:
        return self.folder / f"{number:06d}.json"


_Content = tuple[tuple[str, bytes], ...]  # batches, and the digests of their files in a row


class Register:
    def __init__(self, store: ObjectStore, root: ObjectRef) -> None:
        self._store = store
        self._root = root
        self._logs: OrderedDict[ObjectRef, _Log] = OrderedDict()
        self._read: OrderedDict[ObjectRef, _Content] = OrderedDict()
        self._size = 0  # of what is in `_read`

    async def enter(self, table: TableName, batch: str, files: Sequence[FileVersion]) -> dict[str, str]:
        """Enter the files of a batch (see `batch_name`); the keys of those that others have, with their record."""
        found = await self._ask(table, batch, files)
        theirs = {holder: _place(holder) for holder in set(found.values()) if not _same(holder, batch)}
        others = {key: theirs[holder] for key, holder in found.items() if holder in theirs}
        DOUBLE.inc(len(others))
        return others

    async def holders(self, table: TableName, files: Sequence[FileVersion]) -> dict[str, str]:
        """The keys of the files that any batch has entered, with the place of its record."""
        return {key: _place(holder) for key, holder in (await self._ask(table, "", files)).items()}

    async def _ask(self, table: TableName, batch: str, files: Sequence[FileVersion]) -> dict[str, str]:
        heavy, found = len(files) > _MANY_FILES, dict[str, str]()
        for hour, members in (await aside(heavy, _by_hour, files)).items():
            entry = await aside(heavy, _entry, batch, members)
            await self._settle(self._log(table, hour), entry)
            found |= await aside(heavy, _held, entry, members)
        return found

    def _log(self, table: TableName, hour: str) -> _Log:
        folder = self._root / f"{segment(str(table.partition(None)))}/{hour}"
        known = self._logs.get(folder)
        if known is None:
            known = self._logs[folder] = _Log(folder)
            idle = [ref for ref, one in self._logs.items() if not one.lock.locked() and not one.waiting]
            for ref in idle[: max(0, len(self._logs) - _LOGS)]:
                if ref != folder:
                    del self._logs[ref]
        self._logs.move_to_end(folder)
        return known

    async def _settle(self, pages: _Log, entry: _Entry) -> None:
        """Batches that come while a page is written share the next one."""
        pages.waiting.append(entry)
        await asyncio.sleep(0)  # windows that are due at the same moment are all here then
        while not entry.settled:
            async with pages.lock:
                if entry not in pages.waiting:
                    continue  # somebody took it along
                together = _together(entry, pages.waiting)
                pages.waiting = [one for one in pages.waiting if one not in together]
                try:
                    await self._settle_all(pages, list(together))
                except BaseException:
                    # The others try for themselves: what failed here need not concern them.
                    pages.waiting = [one for one in together if one is not entry] + pages.waiting
                    raise

    async def _settle_all(self, pages: _Log, entries: list[_Entry]) -> None:
        await self._catch_up(pages, probe=any(not one.batch for one in entries))
        await self._look_up(pages, pages.pages, entries)
        heavy = _heavy(entries)
        while content := await aside(heavy, _content, entries):
            span = _joined([one.span for one in entries if one.batch])
            number = pages.next
            try:
                await self._write(pages.page(number), content, span)
            except PreconditionFailed:
                seen = len(pages.pages)
                await self._catch_up(pages, probe=True)
                await self._look_up(pages, pages.pages[seen:], entries)
                continue
            pages.pages.append(_Page(number, span))
            self._keep(pages.page(number), content)
            await self._look_up(pages, pages.pages[-1:], entries)
        for one in entries:
            one.settled = True

    async def _catch_up(self, pages: _Log, *, probe: bool) -> None:
        """Know the pages there are: by one listing, and from then on by asking for the next one."""
        if not pages.listed:
            async for info in self._store.list(pages.folder / ""):
                named = _PAGE.fullmatch(info.ref.name.rpartition("/")[2])
                if named is None:
                    JUNK.inc()
                    log.warning("register.junk", object=info.ref.url)
                    continue
                pages.pages.append(_Page(int(named[1]), Span.of(info)))
            pages.listed = True
        elif probe:
            while (page := await self._store.stat(pages.page(pages.next))) is not None:
                pages.pages.append(_Page(pages.next, Span.of(page)))

    async def _look_up(self, pages: _Log, some: Iterable[_Page], entries: Sequence[_Entry]) -> None:
        """Who has what, by these pages; the first one that has a file counts."""
        for page in some:
            asking = [one for one in entries if len(one.holders) < len(one.files) and one.span.touches(page.span)]
            if not asking:
                continue
            content = await self._pages_content(pages.page(page.number))
            await aside(_heavy(asking), _look_in, content, asking)

    async def _pages_content(self, ref: ObjectRef) -> _Content:
        known = self._read.get(ref)
        if known is not None:
            self._read.move_to_end(ref)
            return known
        try:
            data, _ = await self._store.read(ref, largest=LARGEST_LIST)
        except NotFound:
            return ()  # its time is over
        content = await aside(len(data) > _MANY_FILES * _DIGEST, _parse, data, ref)
        self._keep(ref, content)
        return content

    def _keep(self, ref: ObjectRef, content: _Content) -> None:
        self._read[ref] = content
        self._size += sum(len(blob) for _, blob in content)
        while self._size > _CACHED and len(self._read) > 1:
            _, dropped = self._read.popitem(last=False)
            self._size -= sum(len(blob) for _, blob in dropped)

    async def _write(self, ref: ObjectRef, content: _Content, span: Span) -> None:
        data = await aside(sum(len(blob) for _, blob in content) > _MANY_FILES * _DIGEST, _written, content)
        await self._store.create(ref, data, if_generation=ABSENT, metadata=span.to_metadata())
        PAGES.inc()


def batch_name(place: str, born: str) -> str:
    """A batch in the register: the place of its record, and when that was created.

    A record expires sooner than its page. Created once more at the same place, it is another batch.
    """
    return f"{place}@{born}" if born else place


def _place(batch: str) -> str:
    return batch.rpartition("@")[0] or batch


def _same(one: str, other: str) -> bool:
    """A version that knows nothing of births leaves them out when it saves a record: then the place has to do."""
    return one == other or (_place(one) == _place(other) and ("@" not in one or "@" not in other))


def _together(first: _Entry, waiting: Iterable[_Entry]) -> dict[_Entry, None]:
    """Those that share a page with the first: as many as are settled at once without holding up everybody else."""
    together, size = {first: None}, len(first.files)
    for one in waiting:
        if one is not first and size + len(one.files) <= _MANY_FILES:
            together[one] = None
            size += len(one.files)
    return together


def _heavy(entries: Iterable[_Entry]) -> bool:
    return sum(len(one.files) for one in entries) > _MANY_FILES


def _by_hour(files: Iterable[FileVersion]) -> Mapping[str, list[FileVersion]]:
    """By the generation alone: a message without payload tells nothing else."""
    hours: defaultdict[int, list[FileVersion]] = defaultdict(list)
    for file in files:
        hours[file.generation // _HOUR].append(file)
    named: defaultdict[str, list[FileVersion]] = defaultdict(list)
    for members in hours.values():
        named[f"{generation_time(members[0].generation):%Y-%m-%dT%H}"] += members  # nonsense is all in one hour
    return named


def _entry(batch: str, files: Sequence[FileVersion]) -> _Entry:
    return _Entry(batch, [digest(file.key) for file in files], _span(files))


def _held(entry: _Entry, files: Sequence[FileVersion]) -> dict[str, str]:
    """Who has what, by the keys of the files."""
    pairs = zip(files, entry.files, strict=True)
    return {file.key: entry.holders[one] for file, one in pairs if one in entry.holders}


def _span(files: Sequence[FileVersion]) -> Span:
    folders = {f"{file.ref.bucket}/{file.ref.name.rpartition('/')[0]}" for file in files}
    marks = frozenset(blake2b(one.encode(), digest_size=4).hexdigest() for one in folders)
    generations = [file.generation for file in files]
    return Span(min(generations), max(generations), marks if len(marks) <= _FOLDERS else None)


def _joined(spans: Sequence[Span]) -> Span:
    folders: frozenset[str] | None = frozenset()
    for one in spans:
        folders = None if folders is None or one.folders is None else folders | one.folders
    if folders is not None and len(folders) > _FOLDERS:
        folders = None
    return Span(min(one.low for one in spans), max(one.high for one in spans), folders)


def _content(entries: Iterable[_Entry]) -> _Content:
    """What is left to be entered."""
    taken: set[bytes] = set()
    content = []
    for one in entries:
        if one.batch and (new := [piece for piece in one.files if piece not in one.holders and piece not in taken]):
            taken.update(new)
            content.append((one.batch, b"".join(dict.fromkeys(new))))
    return tuple(content)


def _pieces(blob: bytes) -> list[bytes]:
    return [blob[at : at + _DIGEST] for at in range(0, len(blob), _DIGEST)]


def _found(entry: _Entry, content: _Content) -> dict[bytes, str]:
    """What the page has of what is still open: few files are searched for, many are compared."""
    wanted = {one for one in entry.files if one not in entry.holders}
    if len(wanted) <= _FEW:
        return {one: batch for batch, blob in content for one in wanted if _has(blob, one)}
    return {one: batch for batch, blob in content for one in _pieces(blob) if one in wanted}


def _look_in(content: _Content, entries: Iterable[_Entry]) -> None:
    for one in entries:
        one.holders |= _found(one, content)


def _has(blob: bytes, piece: bytes) -> bool:
    at = blob.find(piece)
    while at % _DIGEST and at >= 0:
        at = blob.find(piece, at + 1)
    return at >= 0


def _written(content: _Content) -> bytes:
    batches = [{"Record": batch, "Files": b64encode(blob).decode()} for batch, blob in content]
    return orjson.dumps({"schema_version": SCHEMA_VERSION, "Batches": batches})


def _parse(data: bytes, ref: ObjectRef) -> _Content:
    try:
        with reading(ref):
            batches = document(data, version=SCHEMA_VERSION)["Batches"]
            return tuple((str(one["Record"]), b64decode(one["Files"], validate=True)) for one in batches)
    except NewerVersion:
        raise  # it may have the files that are asked for: whoever asks has to wait
    except UnreadableObject as error:
        # Nobody but us writes here, and we write whole pages: whatever this is, it holds no files of ours.
        JUNK.inc()
        log.warning("register.junk", error=str(error))
        return ()
