"""Secrets in rules stay in the rules: whatever is stored of a rule elsewhere is sealed.

A batch pins its rule in objects that many may read (journal, windows, deferred tasks). What is secret in an action is
replaced by stars there (`seal`), and looked up again in the rule in force when the action runs (`reopened`). So a batch
keeps everything of its rule as it was but the secrets, of which the newest count: whoever replaces a token wants the
old one used no more, neither by batches under way nor by replays.

Invariant: a secret goes only where the rule in force sends it. It is given to a pinned action only if the rule still
has an action that is the same in everything but secrets; an edited address, header or body finds none, and so does a
forged record.

What counts as a secret: every header of `call` that is not a common harmless one; the query, the user and the path of
a web hook in a web address; `Token` of `notify`; and whatever stands under a key with a telling name, at any depth.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ingestd.documents.secrecy import STARS, names_a_secret
from ingestd.rules.actions import Action, Request

_LISTS = frozenset({"onsuccess", "onfailure", "ondone"})
_AROUND = frozenset({"batch", "group"})
_HARMLESS = frozenset(
    {
        *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-encoding"),
        *("content-language", "content-type", "date", "expect", "host", "idempotency-key", "if-match", "if-none-match"),
        *("origin", "prefer", "referer", "user-agent"),
    }
)
_WEB = re.compile(r"^https?://", re.IGNORECASE)


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """A rule, route or task as plain data, spelt in any case, without the secrets of its actions."""
    found = dict(document)
    for key, value in document.items():
        if key.lower() in _LISTS:
            found[key] = [_sealed_action(one) for one in value] if isinstance(value, list | tuple) else value
            if isinstance(value, Mapping):
                found[key] = _sealed_action(value)
        elif key.lower() in _AROUND and isinstance(value, Mapping):
            found[key] = seal(value)
    return found


def is_sealed(document: Mapping[str, Any]) -> bool:
    """Whether a rule, route or task has lost a secret to `seal`."""
    for key, value in document.items():
        if key.lower() in _LISTS:
            actions = value if isinstance(value, list | tuple) else (value,)
            if any(isinstance(one, Mapping) and _action_is_sealed(one) for one in actions):
                return True
        elif key.lower() in _AROUND and isinstance(value, Mapping) and is_sealed(value):
            return True
    return False


def request_is_sealed(request: Request) -> bool:
    return any(_is_stars(text) for _, text in _texts(_plain(request)))


def actions_of(*lists: Sequence[Action]) -> tuple[Action, ...]:
    """Every action of these lists, nested ones included, in order."""
    return tuple(action for actions in lists for one in actions for action in one.nested())


def reopened(request: Request, pinned: Sequence[Request], current: Sequence[Request]) -> Request | None:
    """The request as the rule in force has it: the same but for secrets. None when it has no such action.

    `pinned` has `request` among all requests of its rule. Of several that differ only in secrets, its place tells.
    """
    wanted = _sealed(_plain(request))

    def alike(requests: Sequence[Request]) -> list[Request]:
        return [one for one in requests if type(one) is type(request) and _sealed(_plain(one)) == wanted]

    found = alike(current)
    if all(one == found[0] for one in found[1:]):
        return found[0] if found else None
    before = alike(pinned)
    place = next((index for index, one in enumerate(before) if one is request), None)
    return found[place] if place is not None and len(before) == len(found) else None


def secret_texts(request: Request) -> list[str]:
    """The secrets of a request as they may show up in answers and errors."""
    plain = _plain(request)
    found: list[str] = []
    for clear, sealed in _differing(plain, _sealed(plain)):
        if sealed == STARS:
            found += [clear, clear.rpartition(" ")[2]]  # `Bearer …`
        else:
            found += _parts_of(clear)
    return [text for text in dict.fromkeys(found) if text]


def public_url(url: str) -> str:
    """A web address as it may be shown: without user and query, and without the path of a web hook."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return STARS
    if parts.query or parts.fragment:
        parts = parts._replace(query=STARS, fragment="")
    if "@" in parts.netloc:
        parts = parts._replace(netloc=f"{STARS}@{parts.netloc.rpartition('@')[2]}")
    if len(parts.path) > 1 and _is_hook(parts.netloc, parts.path):
        parts = parts._replace(path=f"/{STARS}")
    return parts.geturl()


def _is_hook(host: str, path: str) -> bool:
    """Slack's, Teams', Discord's and others: whoever knows the path may post."""
    return "hook" in host.lower() or "webhook" in path.lower() or path.startswith("/services/T")


def _parts_of(url: str) -> list[str]:
    parts = urlsplit(url)
    found = [url, parts.netloc.rpartition("@")[0], parts.username or "", parts.password or "", parts.query]
    found += [value for _, value in parse_qsl(parts.query)]
    return [*found, parts.path.strip("/")] if _is_hook(parts.netloc, parts.path) else found


def _plain(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = request.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return found


def _sealed_action(action: Any) -> Any:
    if not isinstance(action, Mapping):
        return action
    own = {key: _sealed(value) if key.lower() == "request" else value for key, value in action.items()}
    return seal(own)


def _action_is_sealed(action: Mapping[str, Any]) -> bool:
    own = (value for key, value in action.items() if key.lower() == "request")
    return any(_is_stars(text) for request in own for _, text in _texts(request)) or is_sealed(action)


def _sealed(value: Any, key: str = "", *, headers: bool = False, secret: bool = False) -> Any:
    if isinstance(value, Mapping):
        below = secret or bool(key and names_a_secret(key))
        return {
            name: _sealed(one, str(name), headers=key.lower() == "headers", secret=below) for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        if not (headers or secret or names_a_secret(key)) and _are_plain(value):
            return value
        return [_sealed(one, key, headers=headers, secret=secret) for one in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if (headers and key.lower() not in _HARMLESS) or names_a_secret(key):
        return STARS
    if secret and key.lower() not in ("url", "parameter"):
        return STARS
    return public_url(value) if isinstance(value, str) and _WEB.match(value) else value


def _are_plain(values: Sequence[Any]) -> bool:
    """Texts that are no web addresses, as the names of a batch's files are: there may be very many."""
    return all(isinstance(one, str) for one in values) and not any(map(_WEB.match, values))


def _differing(clear: Any, sealed: Any) -> Iterator[tuple[str, str]]:
    """The texts that sealing has changed, as they were and as they are."""
    if clear is sealed:
        return
    if isinstance(clear, Mapping):
        for name, one in clear.items():
            yield from _differing(one, sealed[name])
    elif isinstance(clear, list | tuple):
        for one, other in zip(clear, sealed, strict=True):
            yield from _differing(one, other)
    elif str(clear) != str(sealed):
        yield str(clear), str(sealed)


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every value that is no list or mapping, as text, with the key it stands under."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts(one, str(name))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, key)
    else:
        yield key, str(value)


def _is_stars(text: str) -> bool:
    return text == STARS or (STARS in text and bool(_WEB.match(text)))
