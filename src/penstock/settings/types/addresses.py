"""Parses host names, addresses and networks."""

from __future__ import annotations

import ipaddress
import re

from penstock.schema.problems import InvalidValue, quoted

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HOST_FORM = "a host name or an address without a port"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_HOST_LENGTH_MAX = 253


def parse_host(text: str) -> str:
    """A host name or an address in its plain form: lower-case, no brackets, no trailing dot, no port."""
    bracketed = text.startswith("[") and text.endswith("]")
    bare = text[1:-1] if bracketed else text
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    name = bare.lower().removesuffix(".")
    if bracketed or not _is_host_name(name):
        raise InvalidValue(f"must be {HOST_FORM}, not {quoted(text)}")
    return name


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to the host. Unknown names count as reachable."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def parse_network(text: str) -> Network:
    """An address or a CIDR block; a block that holds every address there is would trust everybody."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise InvalidValue(
            f"must list addresses or CIDR blocks such as 10.0.0.0/8 (no host bits set), not {quoted(text)}"
        ) from None
    if network.prefixlen == 0:
        raise InvalidValue(f"must not trust every address there is ({quoted(text)})")
    return network


def _is_host_name(name: str) -> bool:
    """RFC 1123 labels. A last label of digits only is a mistyped address ("127.1"), not a name."""
    labels = name.split(".")
    return (
        len(name) <= _HOST_LENGTH_MAX
        and all(_LABEL.fullmatch(label) for label in labels)
        and not labels[-1].isdigit()
        and not re.fullmatch(r"0x[0-9a-f]*", labels[-1])
    )
