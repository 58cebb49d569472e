"""Documents are read with places, and refused with messages that say what to write instead."""

import pytest

from ingestd.documents import (
    AnyValue,
    Document,
    DocumentError,
    LocatedDict,
    Many,
    PlainText,
    native,
    read_documents,
    validate,
)


class Inner(Document):
    table: str
    count: int = 0
    flag: bool = False
    names: Many[str] = ()
    anything: AnyValue = None


class Outer(Document):
    dest: Inner
    on: str | None = None


def problems(text: str, file: str = "a.yaml") -> list[str]:
    with pytest.raises(DocumentError) as caught:
        validate(Outer, read_documents(text, file)[0], file)
    return [str(problem) for problem in caught.value.problems]


def test_an_unknown_key_names_its_line_and_the_key_meant() -> None:
    text = "Dest:\n  Tabel: x\n"
    assert problems(text) == ["a.yaml:2:3: Dest.Tabel: unknown key 'Tabel'; did you mean 'Table'?"]


def test_one_error_lists_all_problems_of_the_file() -> None:
    text = "Dest:\n  Table: x\n  Count: many\n  Flag: perhaps\nExtra: 1\n"
    assert problems(text) == [
        "a.yaml:3:3: Dest.Count: must be a whole number, not 'many'",
        "a.yaml:4:3: Dest.Flag: must be true or false, not 'perhaps'",
        "a.yaml:5:1: Extra: unknown key 'Extra'; known keys are Dest, On",
    ]


def test_a_missing_key_points_at_its_parent() -> None:
    assert problems("on: x\nDest: {}\n") == ["a.yaml:2:1: Dest.Table: required key 'Table' is missing"]


def test_keys_that_differ_only_in_case_are_one_key_given_twice() -> None:
    assert problems("Dest: {Table: x, table: y}\n") == [
        "a.yaml:1:18: Dest.table: key 'table' repeats 'Table'; keep one of them"
    ]


def test_keys_are_case_insensitive_and_values_are_coerced_as_in_bqtail() -> None:
    text = 'dest: {TABLE: 2020, count: "15", flag: yes, names: one}\n'
    assert validate(Outer, read_documents(text, "a.yaml")[0], "a.yaml").dest == Inner(
        table="2020", count=15, flag=True, names=("one",)
    )


def test_yaml_booleans_survive_as_keys_and_text() -> None:
    text = "Dest: {Table: no}\nOn: yes\n"
    read = validate(Outer, read_documents(text, "a.yaml")[0], "a.yaml")
    assert (read.dest.table, read.on) == ("no", "yes")


def test_null_means_not_given() -> None:
    assert validate(Outer, read_documents("Dest: {Table: x, Count: ~}\nOn:\n", "a.yaml")[0], "a").dest.count == 0


def test_a_field_of_any_type_gets_native_values() -> None:
    text = "Dest: {Table: x, Anything: {a: 1, b: [true, 1.5, null, '1', 010, 1:30]}}\n"
    read = validate(Outer, read_documents(text, "a.yaml")[0], "a")
    assert read.dest.anything == {"a": 1, "b": [True, 1.5, None, "1", 10, "1:30"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,}', "1:9: not valid JSON: a key in double quotes is expected; remove the comma before '}'"),
        ('{"a": [1, 2,]}', "1:13: not valid JSON: a value is expected; remove the comma before ']'"),
        ('{"a" 1}', "1:6: not valid JSON: ':' is expected after key 'a'"),
        ('{\n  "a": 1\n  "b": 2\n}', "3:3: not valid JSON: ',' or '}' is expected after the value of 'a'"),
        ('{"a": [1, 2', "1:12: not valid JSON: the document ends inside an open '['"),
        ("{'a': 1}", "1:2: not valid JSON: a key in double quotes is expected"),
        ('{"a": tru}', "1:7: not valid JSON: a value is expected, found 't'"),
        ('{"a": "x', "1:7: not valid JSON: text is never closed"),
        (r'{"a": "\d"}', "1:8: not valid JSON: '\\d' is no JSON escape; write '\\\\d' for a backslash"),
        ("{} {}", "1:4: not valid JSON: text after the end of the document; put several values into one array"),
        ('{"a": 1, "a": 2}', "1:10: a: key 'a' is given twice (first on line 1)"),
        ("[" * 200, "1:102: not valid JSON: nested deeper than 100 levels"),
    ],
)
def test_json_errors_name_line_column_and_cause(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_documents(text, "a.json")
    assert str(caught.value) == f"a.json:{message}"


def test_json_escapes_and_surrogate_pairs_are_read() -> None:
    document = read_documents(r'{"a": "\u00e9\ud83d\ude00\n\/", "n": -1.5e3, "t": true, "z": null}', "a.json")[0]
    assert native(document) == {"a": "é😀\n/", "n": -1500.0, "t": True, "z": None}


@pytest.mark.parametrize(
    ("text", "place"),
    [("a: [1\nb: 2\n", "2:2"), ("a: 1\n\tb: 2\n", "2:1"), ("a: *nowhere\n", "1:4"), ("? {x: 1}\n: 2\n", "1:3")],
)
def test_yaml_errors_name_their_place(text: str, place: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_documents(text, "a.yaml")
    assert str(caught.value).startswith(f"a.yaml:{place}: ")


def test_duplicate_yaml_keys_are_refused() -> None:
    with pytest.raises(DocumentError, match=r"a.yaml:3:1: a: key 'a' is given twice \(first on line 1\)"):
        read_documents("a: 1\nb: 2\na: 3\n", "a.yaml")


def test_several_yaml_documents_are_read_and_empty_ones_left_out() -> None:
    assert [native(d) for d in read_documents("a: 1\n---\n# nothing\n---\n- 2\n", "a.yaml")] == [{"a": 1}, [2]]


def test_anchors_and_merge_keys_work() -> None:
    text = "base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\n"
    assert native(read_documents(text, "a.yaml")[0]) == {"base": {"x": 1, "y": 2}, "use": {"x": 1, "y": 3}}


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DocumentError, match="aliases stand for too much"):
        read_documents("\n".join(lines), "a.yaml")


@pytest.mark.parametrize("text", ["&a [*a]", "a: &a {b: *a}"])
def test_a_document_that_contains_itself_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="refers to itself"):
        read_documents(text, "a.yaml")


@pytest.mark.parametrize("text", ["[" * 5000, "a: " * 3 + "{a: " * 5000, "- " * 5000 + "x"])
def test_deep_nesting_is_refused_not_fatal(text: str) -> None:
    with pytest.raises(DocumentError):
        read_documents(text, "a.yaml")


def test_tags_are_refused_except_plain_text() -> None:
    with pytest.raises(DocumentError, match="tag '!python' is not allowed"):
        read_documents("a: !python x\n", "a.yaml")
    document = read_documents("a: !!str 1\n", "a.yaml")[0]
    assert native(document) == {"a": "1"}


def test_json_with_tabs_in_a_yaml_file_is_read_as_json() -> None:
    assert native(read_documents('{\n\t"a": [\n\t\t1]}', "a.yaml")[0]) == {"a": [1]}


def test_text_that_is_not_utf8_names_its_place() -> None:
    with pytest.raises(DocumentError) as caught:
        read_documents(b"a: 1\nb: \xff\n", "a.yaml")
    assert str(caught.value) == "a.yaml:2:4: not UTF-8 text; save the file as UTF-8"


def test_a_byte_order_mark_is_ignored() -> None:
    assert native(read_documents(b"\xef\xbb\xbfa: 1\n", "a.yaml")[0]) == {"a": 1}


def test_places_are_those_of_the_document() -> None:
    document = read_documents("a:\n  - b: c\n", "a.yaml")[0]
    assert isinstance(document, LocatedDict)
    inner = document["a"][0]
    assert (str(inner.key_places["b"]), str(inner.value_places["b"])) == ("a.yaml:2:5", "a.yaml:2:8")
    assert isinstance(inner["b"], PlainText)


@pytest.mark.parametrize("number", [str(2**63), "-" + "9" * 30, "9" * 5000, "1e400"])
@pytest.mark.parametrize("file", ["a.json", "a.yaml"])
def test_a_number_beyond_64_bits_is_refused_with_its_place(number: str, file: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read_documents(f'{{"When": {{"Message":\n {number}}}}}', file)
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == (2, 2)
    assert "in quotes" in str(problem)
    assert read_documents(f'{{"a": "{number}", "b": {2**63 - 1}}}', file)
