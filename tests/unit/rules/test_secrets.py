"""What of a rule is stored elsewhere holds no secret, and an action gets back its own and no other."""

from typing import Any

import pytest
from tests.support.rules import spec

from ingestd.actions.plan import parse_action
from ingestd.documents import DocumentError
from ingestd.documents.secrecy import STARS
from ingestd.rules.actions import Request
from ingestd.rules.rule import Rule, pinned
from ingestd.rules.secrets import is_sealed, public_url, reopened, request_is_sealed, seal, secret_texts


def call(token: str = "t0ken-1", url: str = "https://api.example/x", **request: Any) -> Request:
    document = {"URL": url, "Headers": {"Authorization": token}, **request}
    return parse_action({"Action": "call", "Request": document}).body


def stored(request: Request) -> Request:
    """The request as a record has it."""
    document = request.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    kept = seal({"OnSuccess": [{"Action": "call", "Request": document}]})
    return parse_action(kept["OnSuccess"][0]).body


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.example/orders", "https://api.example/orders"),
        ("https://api.example/x?sig=abc&t=$DestTable", f"https://api.example/x?{STARS}"),
        ("https://me:pass@api.example/x", f"https://{STARS}@api.example/x"),
        ("https://hooks.slack.com/services/T0/B0/XXXX", f"https://hooks.slack.com/{STARS}"),
        ("https://discord.com/api/webhooks/1/abc", f"https://discord.com/{STARS}"),
        ("https://[bad/x", STARS),
    ],
)
def test_an_address_is_shown_without_what_lets_one_in(url: str, shown: str) -> None:
    assert public_url(url) == shown


def test_secrets_of_nested_lists_and_groups_are_sealed_in_any_spelling() -> None:
    def action(token: str) -> dict[str, Any]:
        return {"action": "Call", "request": {"url": "https://a.example", "HEADERS": {"X-Mine": token}}}

    document = {
        "OnSuccess": {**action("one"), "onfailure": [action("two")]},
        "Batch": {"Group": {"OnDone": [action("three")]}},
        "Dest": {"Table": "d.t", "Transform": {"token": "t.token"}},
    }
    sealed = seal(document)
    assert not any(word in str(sealed) for word in ("'one'", "'two'", "'three'"))
    assert str(sealed).count(STARS) == 3
    assert sealed["Dest"] == document["Dest"], "columns may be called what they like"
    assert is_sealed(sealed)
    assert not is_sealed(document)
    assert seal(sealed) == sealed


def test_what_holds_no_secret_is_stored_as_written() -> None:
    plain = call().model_copy(update={"headers": {"Content-Type": "text/csv", "accept": "*/*"}})
    assert stored(plain) == plain
    query = parse_action({"Action": "query", "Request": {"SQL": f"/{STARS}/ SELECT 1", "Dest": "d.t"}}).body
    assert not request_is_sealed(query), "a banner in SQL is no secret"


def test_a_sealed_action_gets_its_secret_from_the_same_action_whatever_its_place() -> None:
    request = stored(call("old"))
    now = [call("other", "https://other.example"), call("new")]
    found = reopened(request, [request], now)
    assert found is now[1]


@pytest.mark.parametrize(
    "now",
    [
        call("new", "https://evil.example/x"),
        call("new", Method="POST"),
        call("new", Headers={"X-Other": "new"}),
        call("new", Body={"more": 1}),
    ],
)
def test_an_action_that_was_changed_gives_its_secret_to_none_before(now: Request) -> None:
    request = stored(call("old"))
    assert reopened(request, [request], [now]) is None


def test_of_actions_that_differ_only_in_secrets_the_place_tells_and_nothing_is_guessed() -> None:
    before = [stored(call("a")), stored(call("b"))]
    now = [call("A"), call("B")]
    assert [reopened(one, before, now) for one in before] == now
    assert reopened(before[0], before, [*now, call("C")]) is None
    same = [call("A"), call("A")]
    assert reopened(before[0], before[:1], same) == same[0]


def test_secrets_are_known_by_every_part_that_may_show_up_alone() -> None:
    texts = secret_texts(call("Bearer abc123", "https://me:pass@hooks.example/p/q?sig=s1g", Body={"n": 1}))
    assert {"Bearer abc123", "abc123", "me", "pass", "sig=s1g", "s1g", "p/q"} <= set(texts)
    assert "1" not in texts


def test_a_replaced_secret_changes_neither_what_is_pinned_nor_the_hash() -> None:
    def rule(token: str) -> Rule:
        notify = f"{{Action: notify, Request: {{Channels: c, Title: t, Token: {token}}}}}"
        return Rule.of(spec(f"{{Dest: {{Table: d.t}}, OnSuccess: [{notify}]}}"), "u")

    old, new = rule("xoxb-1"), rule("xoxb-2")
    assert "xoxb-1" not in str(pinned(old.spec))
    assert (pinned(old.spec), old.content_hash) == (pinned(new.spec), new.content_hash)
    assert old != new, "and yet the one in force is told from the one before"


@pytest.mark.parametrize(
    "field", ["Headers: xoxb-secret", "Headers: {A: [xoxb-secret]}", "Body: 1, Token: xoxb-secret"]
)
def test_what_is_wrong_with_a_rule_is_said_without_its_secrets(field: str) -> None:
    text = f"{{Dest: {{Table: d.t}}, OnSuccess: [{{Action: call, Request: {{URL: 'https://a.example', {field}}}}}]}}"
    with pytest.raises(DocumentError) as refused:
        spec(text)
    assert "xoxb-secret" not in str(refused.value)
