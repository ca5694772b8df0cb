"""The bridge: sends generated requests through the context, like all other requests.

To the generator it is a WSGI application. So a generated request is paced, counted against the
budget, kept in the history, and what it creates is deleted. The bridge chooses its key, so the
generator never sees one.

The input and the output of the generator are plain data here. Only `adapter` imports the
library, which is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from conformance.context.check import Inconclusive, Skip
from conformance.context.context import CheckContext
from conformance.messages.exchange import Exchange, KeyLabel
from conformance.schema.oracle import Contradiction
from engine.messages import Json


@dataclass(frozen=True, slots=True)
class GeneratedCase:
    """One generated request and its answer.

    operation: its id in the document. is_negative: whether it was made to break the document.
    body: JSON; None where it has none. number: of its exchange.
    """

    operation: str
    is_negative: bool
    body: Any
    number: int


NUMBER_HEADER: Final = "X-Tollgate-Exchange"
"""The header that tells which exchange of the run an answer belongs to."""

_OWN: Final = frozenset(
    {
        "host",
        "content-length",
        "connection",
        "user-agent",
        "accept",
        "accept-encoding",
        "x-schemathesis-testcaseid",
    }
)
"""Headers of the generator's own, which say nothing about the deployment."""
_GONE: Final = 599

_Start = Callable[[str, list[tuple[str, str]]], Any]


class Bridge:
    """A WSGI application that passes requests on through a check's context.

    keys: the labels of requests, in turn. exchanges: by number. stopped: the exception of a
    request; after it, none is sent. failures: what is wrong, and the number of the exchange.
    errors: of the generator.
    """

    def __init__(self, ctx: CheckContext) -> None:
        self._ctx = ctx
        self.keys: Iterator[KeyLabel] = iter(())
        self.exchanges: dict[int, Exchange] = {}
        self.failures: list[tuple[Contradiction, int]] = []
        self.errors: list[str] = []
        self.stopped: Inconclusive | Skip | None = None

    def __call__(self, environ: dict[str, Any], start_response: _Start) -> Iterable[bytes]:
        """Send one request and give its answer back."""
        exchange = self._sent(environ)
        if exchange is None or exchange.status is None:
            start_response(f"{_GONE} Gone", [("Content-Type", "text/plain")])
            return [b""]
        self.exchanges[exchange.number] = exchange
        headers = [(NUMBER_HEADER, str(exchange.number))]
        headers += [
            (name, text.encode("latin-1", "replace").decode("latin-1"))
            for name, text in exchange.headers.items()
            if name.lower() not in {"content-length", "connection", "transfer-encoding"}
        ]
        start_response(f"{exchange.status} Answered", headers)
        return [exchange.content]

    def _sent(self, environ: dict[str, Any]) -> Exchange | None:
        if self.stopped is not None:
            return None
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size) if size else None
        try:
            path = str(environ["REQUEST_URI"]).encode("ascii", "ignore").decode()
            method, path = self._ctx.target.spelling.here(environ["REQUEST_METHOD"], path)
            key = next(self.keys, None)
            headers = _headers(environ)
            return self.send(method, path, body, key=key, headers=headers)
        except (Inconclusive, Skip) as why:
            self.stopped = why
            return None

    def send(self, method: str, path: str, body: Json | bytes, **more: Any) -> Exchange:  # noqa: ANN401 # reason: fields of HttpRequest
        """Send a request and wait for its answer, in the generator's thread."""
        asked = self._ctx.client.insist(method, path, body, **more)
        exchange: Exchange = self._ctx.transport.run([asked])[0]
        return exchange


def _headers(environ: dict[str, Any]) -> dict[str, str]:
    headers = {}
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            headers[name.removeprefix("HTTP_").replace("_", "-").title()] = str(value)
    if environ.get("CONTENT_TYPE"):
        headers["Content-Type"] = str(environ["CONTENT_TYPE"])
    return {name: text for name, text in headers.items() if name.lower() not in _OWN}
