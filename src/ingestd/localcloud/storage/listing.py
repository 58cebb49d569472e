"""Listing: names in byte order, folded at a delimiter, in pages.

Each page is one consistent look at the database. A folder is folded by jumping past it, so listing the top level of a
bucket costs as much as the top level has entries.
"""

import base64
import binascii
from dataclasses import dataclass, replace

import orjson

from ingestd.localcloud.storage.database import Database
from ingestd.localcloud.storage.errors import invalid
from ingestd.localcloud.storage.globs import alternatives, glob_matcher, literal_prefix
from ingestd.localcloud.storage.model import ListPage, ListQuery, ObjectVersion

MAX_PAGE = 1000
_BEFORE_ALL = -1


def successor(prefix: str) -> str | None:
    """The smallest name above every name with this prefix, or None where there is none."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            following = 0xE000 if last == 0xD7FF else last + 1
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None


@dataclass(frozen=True, slots=True)
class _Position:
    """Everything up to here is done. For a folded folder, everything in it is."""

    name: str
    generation: int = _BEFORE_ALL
    folded: bool = False

    def token(self) -> str:
        return base64.urlsafe_b64encode(orjson.dumps([self.name, self.generation, self.folded])).decode()

    @classmethod
    def parse(cls, token: str) -> "_Position":
        try:
            name, generation, folded = orjson.loads(base64.urlsafe_b64decode(token))
            return cls(str(name), int(generation), bool(folded))
        except (binascii.Error, ValueError, TypeError) as error:
            raise invalid("Invalid page token.", parameter="pageToken") from error

    def start(self) -> tuple[str, int] | None:
        """Where the scan goes on; None at the end of all names."""
        if not self.folded:
            return self.name, self.generation
        following = successor(self.name)
        return None if following is None else (following, _BEFORE_ALL)


def list_page(database: Database, bucket: str, query: ListQuery) -> ListPage:
    """One page. A few patterns in braces are looked for one by one, instead of in every name of the bucket."""
    patterns = alternatives(query.match_glob)
    if len(patterns) > 1 and not (query.delimiter or query.page_token):
        pages = [_list_page(database, bucket, replace(query, match_glob=pattern)) for pattern in patterns]
        items = {(item.name, item.generation): item for page in pages for item in page.items}
        limit = min(query.max_results or MAX_PAGE, MAX_PAGE)
        if len(items) <= limit and not any(page.next_page_token for page in pages):
            return ListPage([items[key] for key in sorted(items)], [])
    return _list_page(database, bucket, query)


def _list_page(database: Database, bucket: str, query: ListQuery) -> ListPage:
    limit = min(query.max_results or MAX_PAGE, MAX_PAGE)
    matcher = glob_matcher(query.match_glob) if query.match_glob else None
    prefix = query.prefix
    if matcher is not None:
        literal = literal_prefix(query.match_glob)
        if not literal.startswith(prefix) and not prefix.startswith(literal):
            return ListPage([], [])
        scan_prefix = max(prefix, literal, key=len)
    else:
        scan_prefix = prefix
    stop = successor(scan_prefix) if scan_prefix else None
    if query.end_offset and (stop is None or query.end_offset < stop):
        stop = query.end_offset

    items: list[ObjectVersion] = []
    prefixes: list[str] = []
    last: _Position | None = None
    start: tuple[str, int] | None = (max(scan_prefix, query.start_offset), _BEFORE_ALL)
    if query.page_token:
        resumed = _Position.parse(query.page_token).start()
        start = max(start, resumed) if start is not None and resumed is not None else None

    while start is not None:
        position, start = start, None
        for version in database.scan(bucket, *position, stop):
            if not (version.live or query.versions):
                continue
            folder = _folder(version.name, prefix, query.delimiter)
            if matcher is not None and not (
                matcher.fullmatch(version.name) or (folder is not None and matcher.fullmatch(folder))
            ):
                continue
            if len(items) + len(prefixes) >= limit:
                assert last is not None
                return ListPage(items, prefixes, last.token())
            if folder is None:
                items.append(version)
                last = _Position(version.name, version.generation)
                continue
            if query.include_trailing_delimiter and version.name == folder:
                items.append(version)
            prefixes.append(folder)
            last = _Position(folder, folded=True)
            start = last.start()
            break
    return ListPage(items, prefixes)


def _folder(name: str, prefix: str, delimiter: str) -> str | None:
    if not delimiter:
        return None
    at = name.find(delimiter, len(prefix))
    return None if at < 0 else name[: at + len(delimiter)]
