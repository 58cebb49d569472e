"""Where `call` may go: `actions.allowed_hosts`, asked twice.

First the URL: its host and port have to match a pattern. A pattern without a port stands for the port that belongs to
the scheme, and no other. Then every address that the host's name leads to, and the connection is made to an address
that was asked about: a name resolves to whatever its owner says at that moment.

* An address of the public internet is open to every allowed name.
* One of the own network is open to names that are listed in full, without a wildcard.
* This machine, its link and the metadata server (whose tokens are worth more than any answer) are open only where the
  address itself is listed, or `localhost`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from ingestd.model.addresses import Address, own_network, plain, public
from ingestd.model.errors import BadInput

_PORTS = {"http": 80, "https": 443}
_PATTERN = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>[0-9*]+))?")
_AN_ADDRESS = re.compile(r"(?=.*[0-9])(?:[0-9.*]+|[0-9a-f:*]*:[0-9a-f.:*]*)")


@dataclass(frozen=True, slots=True)
class _Pattern:
    host: str
    port: str  # empty: the scheme's own

    @classmethod
    def of(cls, text: str) -> "_Pattern":
        found = _PATTERN.fullmatch(text.lower())
        if found is None:
            return cls(text.lower(), "")  # an IPv6 address without brackets
        return cls(found["host"].strip("[]"), found["port"] or "")

    def covers(self, host: str, port: int, own_port: int) -> bool:
        reaches = fnmatchcase(str(port), self.port) if self.port else port == own_port
        return reaches and fnmatchcase(host, self.host)


@dataclass(frozen=True, slots=True)
class _Target:
    host: str
    port: int
    own_port: int

    @classmethod
    def of(cls, url: str) -> "_Target":
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError as error:
            raise BadInput(f"call: {url!r} is no URL: {error}") from error
        if parts.scheme not in _PORTS or not host:
            raise BadInput(f"call: {url!r} is no http(s) URL")
        if parts.username or parts.password:
            raise BadInput("call: credentials in a URL end up in logs; use Headers or Auth")
        own_port = _PORTS[parts.scheme]
        return cls(host, own_port if port is None else port, own_port)

    def patterns(self, allowed: Iterable[str], host: str) -> list[_Pattern]:
        return [one for one in map(_Pattern.of, allowed) if one.covers(host, self.port, self.own_port)]


def check_host(url: str, allowed: tuple[str, ...]) -> None:
    """Refuse a URL outside the operator's list. `*.example.com` covers every host below example.com."""
    target = _Target.of(url)
    if not target.patterns(allowed, target.host):
        own = target.port == target.own_port
        where = target.host if own else f"{target.host}:{target.port}"
        raise BadInput(f"call: host {where} is not allowed; add it to actions.allowed_hosts in the settings")


def reach(url: str, allowed: tuple[str, ...]) -> Callable[[Address], bool]:
    """Whether the URL's host may be looked for at an address."""
    target = _Target.of(url)
    in_full = [one for one in target.patterns(allowed, target.host) if not set("*?[") & set(one.host)]

    def may(address: Address) -> bool:
        address = plain(address)
        listed = [one for one in target.patterns(allowed, str(address)) if _AN_ADDRESS.fullmatch(one.host)]
        if public(address) or listed:
            return True
        return bool(in_full) and (own_network(address) or (target.host == "localhost" and address.is_loopback))

    return may
