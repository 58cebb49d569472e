"""What kind of place an IP address is: the public internet, the own network, or this machine and its metadata."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address

_TRANSLATED = IPv6Network("64:ff9b::/96")  # an IPv4 address behind NAT64
_METADATA = IPv6Address("fd20:ce::254")  # Google's metadata server; its IPv4 address is link-local


def plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it stands for one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def public(address: Address) -> bool:
    address = plain(address)
    return address.is_global and not address.is_multicast


def own_network(address: Address) -> bool:
    """Neither the public internet nor this machine, its link, or the metadata server that hands out its tokens."""
    address = plain(address)
    here = address.is_loopback or address.is_link_local or address.is_unspecified or address == _METADATA
    return not (here or address.is_multicast or address.is_global)
