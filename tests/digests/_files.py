"""What the files that people write are read as, and what is said about each wrong line of them.

Each file is a right one in which one line is changed: it has another value, another name, comes
twice or is left out. The text holds what was read, or the message with its place.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

from engine import Engine, LimitTable, Profile
from engine.errors import TollgateError
from engine.http.configuration import loads as load_configuration
from engine.http.configuration import provision
from simulator import scenario
from tests.drawn import Seeded, outside_scenario_text, scenario_text

__all__ = ["FILES", "read_text"]

_VALUES: Final = (
    *("5", "-1", "0", "1.5", "true", '"x"', '""', "[]", '["x"]', "{}", '"10s"', '"1500ms"'),
    *('"5/10s"', '"1e3"', '"${NOBODY}"', '"${KEY}"', "9223372036854775808", "inf", "1979-05-27"),
    *('"POST /tokens"', '"3/2s"', '"0s"', '"-1s"', '"1.5s"', '"10 s"', '"1h30m"', '"2KB"', '"7%"'),
    *("{ x = 1 }", "[{ x = 1 }]", '["", "/pci/"]', '"a\\nb"', '"é"', '"127.0.0.1:99999"', '"test"'),
)
_TRIES: Final = 4
_PAIR: Final = re.compile(r'^("[^"]+"|[\w-]+) = (.+)$')
_KEY: Final = "key_prod_us_pvt_1234567890123456789012"
_SERVE: Final = f"""\
store = "memory"
master_key = "{"00" * 32}"
region = "eu"
trusted_proxies = ["10.0.0.0/8", "2001:db8::1"]
own_names = ["service.example"]
metrics_address = "127.0.0.1:9464"
allowed_destinations = ["https://api.example.com/v1"]
private_destinations = ["192.168.0.0/16"]
cors_origins = ["https://kiosk.example"]

[[tenants]]
name = "acme"
kind = "test"
settings = {{ deduplicate_tokens = true }}
host_suffixes = [".shop.example"]

[tenants.quotas]
"Log Retention" = "3h"
"Tokenize Limit" = 7
"Detokenize Limit" = 8
"CVC Retention" = "3s"
"Token Intent Retention" = "90m"
"Rate Limit" = "Default"

[[applications]]
name = "backend"
tenant = "acme"
kind = "private"
grants = [{{ container = "/pci/", permissions = ["token:create", "token:read"] }}]
keys = ["${{KEY}}"]

[[applications]]
name = "page"
tenant = "acme"
kind = "public"
origins = ["https://shop.example"]
"""


def _changed(text: str, choose: Seeded) -> Iterator[str]:
    """Yield the text itself, and with each of its lines changed in some ways."""
    yield text
    lines = text.split("\n")
    values = [found[2] for found in map(_PAIR.match, lines) if found is not None]
    for place, line in enumerate(lines):
        found = _PAIR.match(line)
        if found is None:
            continue
        name, value = found.groups()
        others = [f"{name} = {choose.one(_VALUES)}" for _ in range(_TRIES)]
        others += [f"{name} = {choose.one(values)}" for _ in range(_TRIES // 2)]
        others += [choose.one(("", f"{line}\n{line}", f"{name}x = {value}", f"{name} =", name))]
        for other in others:
            yield "\n".join([*lines[:place], other, *lines[place + 1 :]])


def _served(text: str) -> str:
    config, document = load_configuration(text)
    made = provision(Engine(seed=7), config, document)
    return f"{config} {[(one.tenant.quotas, one.application, str(one.text)) for one in made]}"


def _from_file(read: Callable[[Path], Any]) -> Callable[[str], str]:
    def reading(text: str) -> str:
        file = Path("given.toml")
        file.write_text(text, encoding="utf-8")
        return repr(read(file))

    return reading


FILES: Final[dict[str, tuple[Callable[[], list[str]], Callable[[str], str]]]] = {
    "serve": (lambda: [_SERVE], _served),
    "limits": (lambda: [LimitTable.default().to_toml()], _from_file(LimitTable.from_toml)),
    "profile": (lambda: [Profile().to_toml()], _from_file(Profile.from_toml)),
    "scenario": (
        lambda: [scenario_text(Seeded(4)), outside_scenario_text(Seeded(5))],
        lambda text: repr(scenario.loads(text)),
    ),
}
"""Name → the right files, and what reads one."""


def read_text(name: str) -> str:
    """Return what all changed files of a kind are read as, or what is said about them."""
    made, read = FILES[name]
    said: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, {"KEY": _KEY}),
    ):
        for text in made():
            for changed in _changed(text, Seeded(len(said))):
                try:
                    said.append(read(changed))
                except TollgateError as error:
                    said.append(f"{type(error).__name__}: {error}")
    return re.sub(r"frozenset\(\{([^}]*)\}\)", _sorted, "\n".join(said))


def _sorted(found: re.Match[str]) -> str:
    return str(sorted(found[1].split(", ")))
