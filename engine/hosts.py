"""Client addresses in canonical form (D-IP), hostnames of proxies (D-HOST), and request targets.

The owner of a hostname receives every request sent to it, keys and bodies included. So a tenant
can register one only under a suffix that the operator lists for it, and never an IP address or a
name of the server itself.

A client's address has one form, whichever way its request arrives: an IPv4-mapped IPv6 address is
the IPv4 one; IPv6 clients are told apart by the profile's prefix.

Targets are read alike for the server and for a log's replay. A request line names its target in one
of four forms (RFC 9112, 3.2). The limits and the router read the path and the query alone; a scheme
and an authority before them (`https://a.example/tokens`) and a fragment after them are no part of
either. Percent-encoding stays as sent: `/%74okens` is another path than `/tokens`, for the server
too. The server's C parser (httptools) does the same; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import unquote

Address: TypeAlias = IPv4Address | IPv6Address

_ADDRESS: Final = re.compile(
    r"(?:\[(?P<bracketed>[^\]%]*)(?:%[^\]]*)?\]"
    r"|(?P<bare>(?:[0-9A-Fa-f:]*:)?[0-9]+(?:\.[0-9]+){3}(?=:)|(?:[^:%]*:){7}[^:%]*(?=:)"
    r"|[0-9A-Fa-f:]+(?=:[0-9]{5}$)|[^%\[]*)(?:%[^:]*)?)(?::[0-9]{1,5})?"
)


_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4_FORM: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")


def is_plain_address(text: str) -> bool:
    """Return whether a text is an IPv4 address in canonical form; most logs hold no others.

    >>> is_plain_address("192.0.2.7"), is_plain_address("192.0.2.07"), is_plain_address("::1")
    (True, False, False)
    """
    return _IPV4_FORM.fullmatch(text) is not None


def read_address(text: str) -> Address | None:
    """Parse an address as servers and logs write it; None when the text is not an address.

    A port, brackets and an IPv6 zone are no part of it. Without brackets a port is told from the
    end of an IPv6 address only where the address is written in full, or the port has five digits.

    >>> [str(read_address(text)) for text in ("192.0.2.7:612", "[2001:db8::1]:443", "fe80::1%en0")]
    ['192.0.2.7', '2001:db8::1', 'fe80::1']
    >>> read_address("192.0.2.7:port"), read_address("unknown")
    (None, None)
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    try:
        return unmapped(ip_address(match["bracketed"] or match["bare"]))
    except ValueError:
        return None


def unmapped(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped IPv6 address, else the address itself."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def client_address(text: str, prefix_bits: int) -> str | None:
    """Return the counter key for a client's address; None when the text is not an address.

    >>> client_address("::ffff:203.0.113.7", 128), client_address("2001:db8::1:2:3:4", 64)
    ('203.0.113.7', '2001:db8::')
    >>> client_address("localhost", 128) is None
    True
    """
    address = read_address(text)
    if address is None:
        return None
    if address.version == 6 and prefix_bits < 128:  # one text for all clients within the prefix
        return str(ip_network((address, prefix_bits), strict=False).network_address)
    return str(address)


_DECODED_TIMES: Final = 8
"""How often a path is decoded; no legitimate path is encoded more often."""


def leaves_its_folder(path: str) -> bool:
    """Return whether some server may read a segment `..`, or a control character, in a URL path.

    Servers differ in how often they decode a path, and some drop what follows a `;`.

    >>> [leaves_its_folder(path) for path in ("/v1/..;/admin", "/v1/%252e%252e/", "/v1/..a")]
    [True, True, False]
    """
    for _ in range(_DECODED_TIMES):
        if any(ord(character) < 32 or ord(character) == 127 for character in path):
            return True
        segments = path.replace("\\", "/").split("/")
        if any(segment.partition(";")[0].strip() == ".." for segment in segments):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True


_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_FORM: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

EXAMPLE_SUFFIXES: Final = (".example",)
"""The hostname suffixes of a tenant created in process: a reserved name (RFC 2606)."""

LOCAL_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
"""Names of every local machine; no proxy may use them."""


def host_name(host: str) -> str:
    """Return a Host header's name: lower case, without port or final dot."""
    name = host.encode("utf-8", "replace").decode().strip().lower()
    if not name.startswith("["):
        name = name.partition(":")[0]
    return name.rstrip(".")


def is_address(name: str) -> bool:
    """Return whether a name is an IP address, in any form that a resolver takes.

    A name whose last label is a number counts as an address (WHATWG URL, 3.5): `127.1` and
    `0x7f000001` too.

    >>> is_address("127.1"), is_address("[::1]"), is_address("pay.example")
    (True, True, False)
    """
    return ":" in name or _NUMBER.fullmatch(name.rpartition(".")[2]) is not None


def covers_host(suffix: str, host: str) -> bool:
    """Return whether a suffix covers a hostname: `.a.example` all below it, `a.example` itself.

    >>> covers_host(".a.example", "pay.a.example"), covers_host(".a.example", "a.example")
    (True, False)
    >>> covers_host("a.example", "a.example")
    True
    """
    return host.endswith(suffix) and len(host) > len(suffix) if suffix[0] == "." else host == suffix


def is_suffix(text: str) -> bool:
    """Return whether a text is a lower-case hostname, with or without a leading dot."""
    name = text.removeprefix(".")
    return _FORM.fullmatch(name) is not None and not is_address(name) and name not in LOCAL_NAMES


def host_fault(host: str, suffixes: Iterable[str], own_names: Collection[str]) -> str | None:
    """Return why a tenant's proxy may not use a hostname (in the form of `host_name`).

    suffixes: the tenant's. own_names: the server's own. None when the tenant may have it.
    """
    if is_address(host):
        return "must be no IP address"
    if _FORM.fullmatch(host) is None:
        return "must be a hostname"
    if host in LOCAL_NAMES or host in own_names:
        return "must be no name of the server itself"
    if not any(covers_host(suffix, host) for suffix in suffixes):
        return "must lie under a suffix that the operator lists for the tenant"
    return None


_TARGET: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.\-]*://[^/?#]*)?(?P<path>[^?#]*)(?P<query>\?[^#]*)?", re.DOTALL
)
FIELD_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
FIELD_VALUE: Final = r"[\t -~\x80-\xff]*"
"""What the name and the value of a header field may hold (RFC 9110, 5.1 and 5.5)."""

_METHOD: Final = re.compile(FIELD_NAME)  # a token too
_VERSION: Final = re.compile(r" +(?:[A-Za-z]+/[0-9]+(?:\.[0-9]+)?|[0-9](?:\.[0-9])?)$")


def path_and_query(target: str) -> str:
    """Return the path of a target with its query, as a `Request` holds it.

    >>> path_and_query("https://api.example/tokens?size=1#top"), path_and_query("http://a.example")
    ('/tokens?size=1', '/')
    >>> path_and_query("*"), path_and_query("/a?"), path_and_query("example.test:443")
    ('*', '/a', 'example.test:443')
    """
    match = _TARGET.match(target)
    assert match is not None, "every part of the pattern may be empty"
    query = match["query"] or ""
    return (match["path"] or "/") + ("" if query == "?" else query)


def is_method(text: str) -> bool:
    """Return whether a text is a method's name (RFC 9110, 9.1)."""
    return _METHOD.fullmatch(text) is not None


def split_request_line(line: str) -> tuple[str, str] | None:
    """Return the method and the target of a request line; None when the text is no request line.

    The version may be missing, be that of another protocol, or stand alone, as Hypercorn logs it.

    >>> split_request_line("POST /tokenize HTTPS/1.1"), split_request_line("GET /a b HTTP/2.0")
    (('POST', '/tokenize'), ('GET', '/a b'))
    >>> split_request_line("GET /tokens 1.1"), split_request_line("GET /tokens 2")
    (('GET', '/tokens'), ('GET', '/tokens'))
    >>> split_request_line("GET /tokens"), split_request_line("-") is None
    (('GET', '/tokens'), True)
    """
    method, space, rest = line.partition(" ")
    target = _VERSION.sub("", rest).strip(" ")
    return (method, target) if space and target and is_method(method) else None
