"""What each operation answers and leads to: schemas, headers, examples, links, further statuses.

A table beside the registry: an operation that the registry has and this table has not fails the
build of the document, so neither can be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["CARD", "SHAPES", "Link", "Shape"]

CARD: Final = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """From an answer to the next request. parameters: name → expression; body: likewise."""

    to: str
    parameters: dict[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an operation answers.

    answer: name of the schema of its success, "" for no body, "csv" for a file, "any" for JSON.
    statuses: those beyond the ones that follow from the registry. located: has `Location`.
    """

    answer: str = ""
    statuses: tuple[int, ...] = ()
    located: bool = False
    examples: dict[str, Any] = field(default_factory=dict)
    links: tuple[Link, ...] = ()


def _links(*names: str, **more: str) -> tuple[Link, ...]:
    parameters = {"id": "$response.body#/id", **more}
    return tuple(Link(to=name, parameters=parameters) for name in names)


SHAPES: Final[dict[str, Shape]] = {
    "tokenize": Shape(
        answer="TokenizeAnswer",
        examples={
            "plain": {"name": "Ada", "email": "ada@example.com"},
            "record": {"type": "token", "data": "Ada", "search_indexes": ["{{ data }}"]},
            "card": CARD,
            "array": ["Ada", {"type": "token", "data": "Grace", "metadata": {"order": "7"}}],
            "composite": {"customer": {"names": ["Ada", "Grace"]}, "payment": [CARD]},
        },
        links=(Link(to="tokenize", body="$request.body"),),
    ),
    "create_token": Shape(
        answer="TokenRecord",
        located=True,
        examples={"token": {"type": "token", "data": "Ada"}, "card": CARD},
        links=_links("get_token", "patch_token", "delete_token"),
    ),
    "list_tokens": Shape(answer="TokenRecordPage"),
    "search_tokens": Shape(
        answer="TokenRecordPage",
        examples={
            "whole": {"query": "data:Ada"},
            "number": {"query": "data.number:4242424242424242 AND container:/pci/", "size": 10},
        },
    ),
    "get_token": Shape(answer="TokenRecord"),
    "patch_token": Shape(
        answer="TokenRecord",
        examples={"metadata": {"metadata": {"order": "8"}}, "nothing": {}},
        links=_links("get_token"),
    ),
    "delete_token": Shape(
        links=(Link(to="get_token", parameters={"id": "$request.path.id"}),),
    ),
    "detokenize": Shape(answer="any", examples={"plain": {"note": "nothing to replace"}}),
    "create_token_intent": Shape(
        answer="TokenIntent",
        located=True,
        examples={"token": {"type": "token", "data": "Ada"}, "card": CARD},
        links=_links("get_token_intent", "delete_token_intent"),
    ),
    "get_token_intent": Shape(answer="TokenIntent"),
    "delete_token_intent": Shape(),
    "list_logs": Shape(answer="LogEntryPage"),
    "get_tenant": Shape(answer="Tenant"),
    "create_application": Shape(
        answer="Application",
        statuses=(409,),
        located=True,
        examples={
            "private": {
                "name": "shop",
                "kind": "private",
                "grants": [{"container": "/pci/", "permissions": ["token:create"]}],
            }
        },
        links=_links(
            "get_application",
            "patch_application",
            "create_application_key",
            "list_application_keys",
            "delete_application",
        ),
    ),
    "list_applications": Shape(answer="ApplicationPage"),
    "get_application": Shape(answer="Application"),
    "patch_application": Shape(
        answer="Application", statuses=(409,), examples={"name": {"name": "another name"}}
    ),
    "delete_application": Shape(),
    "create_application_key": Shape(
        answer="ApplicationKeyCreated",
        examples={"usual": {}, "legacy": {"legacy": True}},
        links=(
            Link(
                to="delete_application_key",
                parameters={"id": "$request.path.id", "key_id": "$response.body#/id"},
            ),
        ),
    ),
    "list_application_keys": Shape(answer="ApplicationKeyPage"),
    "delete_application_key": Shape(),
    "create_encryption_key": Shape(
        answer="EncryptionKeyCreated",
        located=True,
        examples={"usual": {"algorithm": "ECDH-ES"}},
        links=_links("get_encryption_key", "delete_encryption_key"),
    ),
    "list_encryption_keys": Shape(answer="EncryptionKeyPage"),
    "get_encryption_key": Shape(answer="EncryptionKey"),
    "delete_encryption_key": Shape(),
    "create_reactor": Shape(
        answer="Reactor",
        located=True,
        examples={"usual": {"name": "echo", "code": "return args", "configuration": {"a": "b"}}},
        links=_links("get_reactor", "patch_reactor", "invoke_reactor", "delete_reactor"),
    ),
    "list_reactors": Shape(answer="ReactorPage"),
    "get_reactor": Shape(answer="Reactor"),
    "patch_reactor": Shape(answer="Reactor", examples={"name": {"name": "another name"}}),
    "delete_reactor": Shape(),
    "invoke_reactor": Shape(
        answer="ReactorAnswer", statuses=(502,), examples={"usual": {"args": {"amount": 5}}}
    ),
    "create_proxy": Shape(
        answer="ProxyCreated",
        statuses=(409,),
        located=True,
        examples={"usual": {"name": "api", "destination_url": "https://api.example.com/v1"}},
        links=_links("get_proxy", "patch_proxy", "delete_proxy"),
    ),
    "list_proxies": Shape(answer="ProxyPage"),
    "get_proxy": Shape(answer="Proxy"),
    "patch_proxy": Shape(
        answer="Proxy", statuses=(409,), examples={"name": {"name": "another name"}}
    ),
    "delete_proxy": Shape(),
    "invoke_proxy": Shape(answer="destination", statuses=(403, 408, 413, 415, 502, 504)),
    "create_account_updater_job": Shape(
        answer="JobCreated", located=True, links=_links("get_account_updater_job")
    ),
    "list_account_updater_jobs": Shape(answer="JobPage"),
    "get_account_updater_job": Shape(answer="Job"),
    "get_account_updater_result": Shape(answer="csv", statuses=(409,)),
    "upload_batch_file": Shape(statuses=(403, 404, 409)),
}
"""By operation name."""
