"""A file's records are found by where they must be, or by what a listing tells; hardly any is read in vain."""

from datetime import timedelta

from tests.unit.ledger.books import Books

from ingestd.batch.record import Record
from ingestd.ledger.reading import BatchState
from ingestd.model.objects import Generation, ObjectRef

DAY = timedelta(days=1)


def remembered(*batches: Record) -> list[tuple[Generation, BatchState]]:
    blank = dict.fromkeys(BatchState.__slots__)
    return [
        (file.generation, BatchState(**{**blank, "event_id": one.event_id}))  # type: ignore[arg-type]
        for one in batches
        for file in one.files
    ]


async def test_of_thousands_of_records_one_is_read() -> None:
    books = Books()
    odd = "in/ä b%23#c?.json"
    mine = [books.batch(books.file(odd, ago)) for ago in (500 * DAY, 40 * DAY, 3 * DAY, timedelta(), -2 * DAY)]
    others = [books.batch(books.file(f"in/{number}.json", number * DAY / 50)) for number in range(2_000)]
    await books.done(*mine, *others, books.batch(books.file(f"{odd}.more")))
    assert set(await books.about(odd)) == {one.event_id for one in mine}
    assert books.store.operations["get"] == len(mine)


async def test_what_the_load_state_remembers_is_read_where_it_lies_and_only_what_is_under_way_is_listed() -> None:
    books = Books()
    alone = books.batch(books.file("in/mine.json", 9 * DAY))
    # A window that began before midnight, and its file came after.
    late = books.batch(books.file("in/0.json", 5 * DAY), books.file("in/mine.json", 5 * DAY), start=5.5 * DAY)
    await books.done(alone, late, *(books.batch(books.file(f"in/x{number}.json")) for number in range(1_500)))
    mine = [(generation, one) for generation, one in remembered(alone, late)]
    assert set(await books.about("in/mine.json", mine)) == {alone.event_id, late.event_id}
    assert books.store.operations["list"] == 2, "what is under way, and rows that are not told yet"
    assert books.store.operations["get"] <= 2 * len(mine)


async def test_records_are_gone_through_while_the_load_state_is_not_told_everything() -> None:
    books = Books()
    told, untold = books.batch(books.file("in/a.json", DAY)), books.batch(books.file("in/a.json"))
    await books.done(told, untold)
    assert await books.about("in/a.json", remembered(told)) == [told.event_id]
    books.store.put(ObjectRef("ops", "journal/LoadState/1.json"), b"{}")
    assert set(await books.about("in/a.json", remembered(told))) == {told.event_id, untold.event_id}
    assert set(await books.about("in/a.json", [])) == {told.event_id, untold.event_id}


async def test_a_file_in_the_middle_of_a_window_is_found_though_its_rule_has_no_windows_any_more() -> None:
    books = Books()
    several = books.batch(*(books.file(f"in/{number}.json") for number in range(5)), start=timedelta())
    ones = [books.batch(books.file(f"in/x{number}.json"), start=timedelta()) for number in range(300)]
    await books.done(several, *ones)
    assert await books.about("in/3.json") == [several.event_id]
    assert books.store.operations["get"] == 1, "windows of one file are not read for it"


async def test_of_a_year_of_windows_only_those_that_may_have_the_file_are_read() -> None:
    books = Books()

    def window(number: int) -> Record:
        ago = number * DAY
        return books.batch(*(books.file(f"in/{number}-{part}.json", ago) for part in range(20)), start=ago)

    windows = [window(number) for number in range(365)]
    await books.done(*windows)
    assert await books.about("in/300-7.json") == [windows[300].event_id]
    assert books.store.operations["get"] <= 10, "each of the others is mistaken once in two hundred times"
