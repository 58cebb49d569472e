"""The filter language, and what it keeps from a subscription."""

from typing import Any

import pytest

from ingestd.localcloud.pubsub.errors import Code, PubSubError
from ingestd.localcloud.pubsub.filters import compile_filter

RED = {"colour": "red", "ce-type": "x.y", "path": "data/a.json"}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('attributes.colour = "red"', True),
        ('attributes.colour = "blue"', False),
        ('attributes.colour != "blue"', True),
        ('attributes.colour != "red"', False),
        ('attributes.missing = "red"', False),
        ('attributes.missing != "red"', True),
        ("attributes:colour", True),
        ("attributes:missing", False),
        ('attributes:"colour"', True),
        ('attributes.ce-type="x.y"', True),
        ('attributes."ce-type" = "x.y"', True),
        ('hasPrefix(attributes.path, "data/")', True),
        ('hasPrefix(attributes.path, "other/")', False),
        ('hasPrefix(attributes.missing, "")', False),
        ("NOT attributes:missing", True),
        ("-attributes:missing", True),
        ("NOT NOT attributes:missing", False),
        ('attributes:colour AND attributes.path != "x"', True),
        ("attributes:colour AND attributes:missing", False),
        ("attributes:missing OR attributes:colour", True),
        ("NOT attributes:missing AND attributes:colour", True),
        ("(attributes:missing OR attributes:colour) AND NOT (attributes:path AND attributes:missing)", True),
        ('attributes.colour = "r\\"ed"', False),
        ("  attributes:colour  ", True),
    ],
)
def test_expressions_mean_what_google_says(text: str, passes: bool) -> None:
    predicate = compile_filter(text)
    assert predicate is not None
    assert predicate(RED) is passes


def test_an_escaped_quote_belongs_to_the_value() -> None:
    predicate = compile_filter(r'attributes.a = "say \"hi\" \\ bye"')
    assert predicate is not None
    assert predicate({"a": 'say "hi" \\ bye'})


def test_no_filter_is_no_predicate() -> None:
    assert compile_filter("  ") is None


@pytest.mark.parametrize(
    "text",
    [
        "colour",
        "attributes",
        "attributes.colour",
        "attributes.colour = red",
        'attributes.colour > "red"',
        'attributes.colour = "red',
        "attributes:a AND attributes:b OR attributes:c",
        "(attributes:a",
        "attributes:a)",
        "attributes:a attributes:b",
        "attributes:a and attributes:b",
        'hasPrefix(attributes:a, "x")',
        'hasSuffix(attributes.a, "x")',
        "NOT",
        "attributes:a AND",
        f'attributes.a = "{"x" * 256}"',
    ],
)
def test_what_is_not_a_filter_is_refused_when_the_subscription_is_created(broker: Any, text: str) -> None:
    with pytest.raises(PubSubError) as refused:
        broker.subscription(filter=text)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_filtered_messages_never_enter_the_backlog(broker: Any) -> None:
    broker.subscription(filter='attributes.kind = "keep"')
    broker.publish("a", kind="drop")
    broker.publish("b", kind="keep")
    broker.publish("c")
    assert broker.stats().backlog == 1
    assert broker.texts() == ["b"]


def test_a_filter_applies_again_after_a_restart(durable: Any) -> None:
    durable.subscription(filter="attributes:kind")
    durable.publish("a")
    durable.publish("b", kind="x")
    durable.restart()
    durable.publish("c")
    assert durable.texts() == ["b"]
