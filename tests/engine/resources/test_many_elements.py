"""A body of very many elements is refused by the Tokenize Limit for little work and memory.

Four million bytes hold nearly a million plain strings, and the limit is five of them.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from engine.resources import tokenize
from engine.tokens.stored import dedup_hashes
from tests.engine.deployment import CARD, Deployment
from tests.memory import STATUS

_SCRIPT = """
import sys
from engine import Engine, Profile, Request
from tests.memory import peak_kb

engine = Engine(seed=7, profile=Profile().replace(tokens={"non_string_leaf": "tokenize"}))
tenant = engine.create_tenant("Acme", settings={"deduplicate_tokens": sys.argv[2] == "on"})
app = engine.create_application(tenant, "a", grants=[("/", {"token:create"})])
key = engine.create_key(app)
parts = {  # all are different, or they would be duplicates of the first
    "leaf": [f"{number}" for number in range(100_000)],
    "number": [*range(100_000)],
    "object": [{"type": "token", "data": f"{number}"} for number in range(100_000)],
}
limited = parts[sys.argv[1]]
fine = limited[:1]
kilobytes, statuses = [], []
for body in (fine, limited):
    request = Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=body)
    statuses.append(engine.handle(request).status)
    kilobytes.append(peak_kb())
print(*statuses, kilobytes[1] - kilobytes[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says what was held")
@pytest.mark.parametrize("kind", ["leaf", "number", "object"])
@pytest.mark.parametrize("setting", ["off", "on"])
def test_tok_limit_a_body_over_the_limit_takes_two_kilobytes_an_element_at_most(
    kind: str, setting: str
) -> None:
    """TOK-LIMIT, D-SIZE: each took four, and a body of four megabytes four gigabytes."""
    command = [sys.executable, "-c", _SCRIPT, kind, setting]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    fine, refused, kilobytes = map(int, said.split())
    assert (fine, refused) == (200, 400)
    assert kilobytes < 200_000


@pytest.mark.parametrize("body", [["x"] * 6, [CARD] * 6])
def test_tok_limit_nothing_is_compared_where_nothing_can_be_a_duplicate(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch, body: list[Any]
) -> None:
    """TOK-LIMIT, D-ORDER: the count is known before a million values are hashed for a look-up."""
    hashed: list[int] = []

    def counted(drafts: Any, *rest: Any) -> Any:
        hashed.append(len(drafts))
        return dedup_hashes(drafts, *rest)

    monkeypatch.setattr(tokenize, "dedup_hashes", counted)
    problem = acme.tokenize(body, status=400)
    assert problem["detail"].startswith("The request would create 6 tokens")
    assert problem["clause"] == "TOK-LIMIT"
    assert hashed == []
    acme.tokenize([*body[:5], 1], status=400)
    acme.engine.set_setting(acme.tenant, "deduplicate_tokens", on=True)
    acme.tokenize(body)
    assert hashed == [6]
