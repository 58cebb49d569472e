"""Listing: order, folders, bounds, pages, versions, patterns."""

import pytest

from ingestd.localcloud.storage import StorageCore, StorageError, database
from ingestd.localcloud.storage.globs import glob_matcher, literal_prefix, wildcard_matcher
from ingestd.localcloud.storage.listing import successor
from ingestd.localcloud.storage.model import ListQuery

NAMES = ["a", "a/", "a/1", "a/2", "a/b/1", "ab", "b/1", "c", "z\U0010ffff", "z\U0010ffff/x", "é"]


@pytest.fixture
def filled(core: StorageCore) -> StorageCore:
    for name in reversed(NAMES):
        core.write("bucket", name, name.encode())
    return core


def names(core: StorageCore, **query: object) -> list[str]:
    return [item.name for item in core.objects.list("bucket", ListQuery(**query)).items]


def test_names_come_in_byte_order(filled: StorageCore) -> None:
    assert names(filled) == sorted(NAMES, key=str.encode)


def test_a_prefix_selects_and_bounds_exclude_the_end(filled: StorageCore) -> None:
    assert names(filled, prefix="a/") == ["a/", "a/1", "a/2", "a/b/1"]
    assert names(filled, start_offset="a/2", end_offset="b/1") == ["a/2", "a/b/1", "ab"]
    assert names(filled, prefix="a/", start_offset="a/2", end_offset="zzz") == ["a/2", "a/b/1"]
    assert names(filled, prefix="z\U0010ffff") == ["z\U0010ffff", "z\U0010ffff/x"]
    assert names(filled, prefix="nothing") == []


def test_a_delimiter_folds_folders(filled: StorageCore) -> None:
    page = filled.objects.list("bucket", ListQuery(delimiter="/"))
    assert [item.name for item in page.items] == ["a", "ab", "c", "z\U0010ffff", "é"]
    assert page.prefixes == ["a/", "b/", "z\U0010ffff/"]
    inside = filled.objects.list("bucket", ListQuery(prefix="a/", delimiter="/"))
    assert [item.name for item in inside.items] == ["a/", "a/1", "a/2"]
    assert inside.prefixes == ["a/b/"]


def test_a_folder_object_is_shown_too_when_asked(filled: StorageCore) -> None:
    page = filled.objects.list("bucket", ListQuery(delimiter="/", include_trailing_delimiter=True))
    assert "a/" in page.prefixes
    assert "a/" in [item.name for item in page.items]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("delimiter", ["", "/"])
def test_pages_add_up_to_the_whole(filled: StorageCore, size: int, delimiter: str) -> None:
    whole = filled.objects.list("bucket", ListQuery(delimiter=delimiter))
    items: list[str] = []
    prefixes: list[str] = []
    token = ""
    while True:
        page = filled.objects.list("bucket", ListQuery(delimiter=delimiter, max_results=size, page_token=token))
        assert len(page.items) + len(page.prefixes) <= size
        items += (item.name for item in page.items)
        prefixes += page.prefixes
        token = page.next_page_token
        if not token:
            break
    assert items == [item.name for item in whole.items]
    assert prefixes == whole.prefixes


def test_a_page_that_ends_exactly_at_the_end_has_no_token(filled: StorageCore) -> None:
    assert filled.objects.list("bucket", ListQuery(max_results=len(NAMES))).next_page_token == ""


def test_a_made_up_page_token_is_refused(core: StorageCore) -> None:
    with pytest.raises(StorageError) as error:
        core.objects.list("bucket", ListQuery(page_token="nonsense!"))
    assert error.value.status == 400


def test_versions_show_each_generation_oldest_first(core: StorageCore) -> None:
    first = core.write("versioned", "n", b"1").generation
    second = core.write("versioned", "n", b"2").generation
    other = core.write("versioned", "m", b"3").generation
    page = core.objects.list("versioned", ListQuery(versions=True))
    assert [(item.name, item.generation) for item in page.items] == [("m", other), ("n", first), ("n", second)]
    one = core.objects.list("versioned", ListQuery(versions=True, max_results=2))
    two = core.objects.list("versioned", ListQuery(versions=True, max_results=2, page_token=one.next_page_token))
    assert [item.generation for item in two.items] == [second]


def test_a_folder_of_deleted_objects_shows_only_among_versions(core: StorageCore) -> None:
    core.write("versioned", "gone/n", b"1")
    core.objects.delete("versioned", "gone/n")
    assert core.objects.list("versioned", ListQuery(delimiter="/")).prefixes == []
    assert core.objects.list("versioned", ListQuery(delimiter="/", versions=True)).prefixes == ["gone/"]


def test_folding_skips_what_is_inside_the_folders(core: StorageCore, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in range(3):
        for number in range(120):
            core.write("bucket", f"f{folder}/{number:03d}", b"")
    seen = []
    decode = database.object_from_row
    monkeypatch.setattr(database, "object_from_row", lambda row: seen.append(row) or decode(row))
    assert core.objects.list("bucket", ListQuery(delimiter="/")).prefixes == ["f0/", "f1/", "f2/"]
    assert len(seen) == 3
    assert len(names(core)) == 360


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.csv", ["a.csv", ".csv"], ["d/a.csv", "a.csv.gz"]),
        ("**.csv", ["a.csv", "d/e/a.csv"], ["a.txt"]),
        ("d/*/x", ["d/1/x", "d//x"], ["d/1/2/x", "d/x"]),
        ("d/**/x", ["d/1/x", "d/1/2/x"], ["e/1/x"]),
        ("file?.txt", ["file1.txt", "fileé.txt"], ["file.txt", "file/.txt", "file12.txt"]),
        ("[abc]x", ["ax", "cx"], ["dx", "abx"]),
        ("[a-c]x", ["bx"], ["dx"]),
        ("[!a-c]x", ["dx"], ["bx"]),
        ("{one,t*o}.txt", ["one.txt", "two.txt"], ["three.txt"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("a.b+c(d)", ["a.b+c(d)"], ["axb+c(d)"]),
        ("**", ["anything", "a/b\nc"], []),
    ],
)
def test_match_glob(glob: str, yes: list[str], no: list[str]) -> None:
    matcher = glob_matcher(glob)
    assert [name for name in yes if not matcher.fullmatch(name)] == []
    assert [name for name in no if matcher.fullmatch(name)] == []
    assert all(name.startswith(literal_prefix(glob)) for name in yes)


@pytest.mark.parametrize("glob", ["[a", "{a,b", "[z-a]"])
def test_a_broken_glob_is_refused(glob: str) -> None:
    with pytest.raises(StorageError) as error:
        glob_matcher(glob)
    assert error.value.status == 400


def test_a_glob_selects_names_and_respects_a_prefix(filled: StorageCore) -> None:
    assert names(filled, match_glob="a/*") == ["a/", "a/1", "a/2"]
    assert names(filled, match_glob="a/**", prefix="a/b") == ["a/b/1"]
    assert names(filled, match_glob="b/*", prefix="a/") == []
    assert names(filled, match_glob="{a,c}") == ["a", "c"]


def test_a_wildcard_crosses_slashes_and_takes_the_rest_literally() -> None:
    matcher = wildcard_matcher("data/*.json")
    assert matcher.fullmatch("data/2024/01/x.json")
    assert matcher.fullmatch("data/.json")
    assert not matcher.fullmatch("data/xjson")
    assert not matcher.fullmatch("data/x.json.gz")


@pytest.mark.parametrize(
    ("prefix", "following"),
    [("a", "b"), ("a/", "a0"), ("\ud7ff", "\ue000"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("", None)],
)
def test_the_successor_bounds_a_prefix(prefix: str, following: str | None) -> None:
    assert successor(prefix) == following


def test_in_process_glob_reads_more_than_a_page(core: StorageCore) -> None:
    for number in range(1005):
        core.write("bucket", f"d/{number:04d}.json", b"")
    core.write("bucket", "d/other.csv", b"")
    assert len(core.glob("bucket", "d/*.json")) == 1005
