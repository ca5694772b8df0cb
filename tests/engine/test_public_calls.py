"""Calls from Python: short ways to ask, and one line for what cannot be (InputError)."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import Engine, InputError, Request
from tests.engine.deployment import Deployment


def test_ask_is_handle_from_an_address_of_its_own(acme: Deployment) -> None:
    answer = acme.engine.ask("POST", "/tokenize", {"name": "Ada"}, key=acme.key)
    assert answer.status == 200
    assert acme.engine.ask("GET", f"/tokens/{answer.body['name']}", key=acme.key).status == 200
    raw = {"Content-Type": "text/plain"}
    assert acme.engine.ask("POST", "/tokenize", b"{}", key=acme.key, headers=raw).status == 415
    elsewhere = acme.engine.ask("GET", "/tokens", key=acme.key, ip="203.0.113.9")
    assert elsewhere.decision.counted == ("LIM-READ", "LIM-PRIVATE.key", "LIM-PRIVATE.ip", "LIM-IP")


def _one_line(call: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as error:
        call()
    text = str(error.value)
    assert "\n" not in text
    return text


REQUESTS: list[tuple[Callable[[Engine], Any], str]] = [
    (lambda e: e.handle("POST /tokenize"), "request = <str> must be a Request; "),  # type: ignore[arg-type] # reason: the mistake
    (lambda e: e.ask("POST", None), "path = None must be a text"),  # type: ignore[arg-type] # reason: the mistake
    (lambda e: e.ask(5, "/tokenize"), "method = 5 must be a text"),  # type: ignore[arg-type] # reason: the mistake
    (lambda e: Request("GET", "/tokens", ip=7), "ip = 7 must be a text"),  # type: ignore[arg-type] # reason: the mistake
    (lambda e: e.ask("GET", "/tokens", key=b"k"), "key = <bytes> must be a text"),  # type: ignore[arg-type] # reason: the mistake
    (
        lambda e: e.ask("GET", "/tokens", headers=["SVC-API-KEY"]),  # type: ignore[arg-type] # reason: the mistake
        "headers = <list> must be a mapping of names to values",
    ),
    (
        lambda e: e.ask("GET", "/tokens", headers={"svc-api-key": "key_1"}),
        "headers hold SVC-API-KEY; give its value as key= instead",
    ),
    (
        lambda e: e.ask("GET", "/proxy", headers={"SVC-PROXY-KEY": "key_1"}),
        "headers hold SVC-PROXY-KEY; give its value as proxy_key= instead",
    ),
]


@pytest.mark.parametrize(("call", "text"), REQUESTS)
def test_what_is_no_request_is_one_line(call: Callable[[Engine], Any], text: str) -> None:
    engine = Engine(seed=7)
    assert _one_line(lambda: call(engine)).startswith(text)
