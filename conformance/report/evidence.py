"""Evidence of a finding: curl commands that send a request again, and the timeline of a limit.

In a curl command keys are shell variables: those that the target file names, else one named after
the key's label. A request with the deployment's own names is shown as it was sent.

A timeline lists separately the requests that the finding names and the first refusal of each key
and address. It sums up all other requests as bursts: when the first and the last were sent, and how
many got which status. A timeline that a check puts into its finding is shown unchanged.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from conformance.context.verdicts import Finding, Moment, Verdict
from conformance.messages.exchange import KEY_PLACE, Exchange, HttpRequest, KeyLabel
from conformance.target import Target
from conformance.wire.transport import PROXY_KEY, fields_of
from engine.messages import Json

_SHELL_SIGN: Final = re.compile(r'["$`\\]')
"""What a shell takes for a sign of its own inside double quotes."""
_ESCAPED: Final = r"\\\g<0>"
_LONGEST_SHOWN: Final = 4_000
_SHOWN: Final = 200


def curl(target: Target, ask: HttpRequest) -> str:
    """Return a curl command that sends the same request.

    >>> from conformance.target import Target, TargetKey
    >>> target = Target(base_url="http://localhost", keys=(TargetKey(role="public", value="x"),))
    >>> curl(target, HttpRequest(method="GET", path="/tokens", key="public.1"))
    'curl -sS -X GET http://localhost/tokens -H "SVC-API-KEY: $KEY_PUBLIC_1"'
    """
    ask = target.dialect.asked(ask)
    parts = ["curl -sS -X", shlex.quote(ask.method), _url(target, ask)]
    if ask.source is not None and target.forwarded is None:
        parts.append(f"--interface {shlex.quote(ask.source)}")
    fields = fields_of(target, ask)
    if not isinstance(ask.body, bytes | None) and "Content-Type" not in ask.headers:
        fields.append(("Content-Type", "application/json"))
    parts += [_header(target, name, text, by_hand=name in ask.headers) for name, text in fields]
    if ask.body is not None:
        parts.append(_data(ask.body))
    return " ".join(parts)


def variable(target: Target, label: KeyLabel) -> str:
    """Return the shell variable that stands for a key's text."""
    key = target.key_labels.get(label)
    if key is not None and key.variable is not None:
        return key.variable
    return "KEY_" + label.replace(".", "_").replace("-", "_").upper()


def burst_command(
    target: Target, finding: Finding, exchanges: Mapping[int, Exchange]
) -> str | None:
    """Return the command that repeats the burst of a limit's finding; None where there is none.

    It sends as many requests at once as the run sent with that key, and counts the statuses.
    """
    if finding.verdict not in _TOLD or not finding.check.startswith("limits."):
        return None
    decisive = next((exchanges[n] for n in finding.evidence if n in exchanges), None)
    if decisive is None:
        return None
    party = _party(decisive)
    sent = [
        exchange
        for exchange in tuple(exchanges.values())
        if exchange.check == finding.check and _party(exchange) == party
    ]
    sent.sort(key=lambda exchange: exchange.sent_ns)
    burst = next(part for part in _bursts(sent, _GAP_NS) if decisive in part)
    if len(burst) <= SHOWN_EVIDENCE:
        return None
    line = curl(target, decisive.ask).replace(
        "curl -sS", "curl -sS -o /dev/null -w '%{http_code}\\n'"
    )
    loop = f"for i in $(seq {len(burst)}); do {line} & done; wait"
    return f"{{ {loop}; }} | sort | uniq -c"


def legend(target: Target, lines: Iterable[str], made: Iterable[KeyLabel] = ()) -> list[str]:
    """Return what each shell variable of some commands stands for."""
    text = "\n".join(lines)
    names = {
        variable(target, label): f"the key {label} of the target" for label in target.key_labels
    }
    names |= {variable(target, label): f"a key that the run made, {label}" for label in made}
    return [
        f"{name}: {meaning}"
        for name, meaning in names.items()
        if re.search(rf"\$(\{{{name}\}}|{name}\b)", text)
    ]


def _party(exchange: Exchange) -> tuple[str | None, str | None]:
    """Return the key, or what stands for it, and the address of an exchange."""
    ask = exchange.ask
    return ask.key or ask.proxy_key or ask.host, ask.source


def _url(target: Target, ask: HttpRequest) -> str:
    front, place, rest = (target.base_url + ask.path).partition(PROXY_KEY)
    if not place:
        return shlex.quote(front)
    key = "none" if ask.proxy_key is None else f"${{{variable(target, ask.proxy_key)}}}"
    return f'{shlex.quote(front)}"{key}"{shlex.quote(rest)}'


def _header(target: Target, name: str, text: str, *, by_hand: bool) -> str:
    """Return the option that sends a header; by_hand: whether the check wrote it itself."""
    if KEY_PLACE.search(text) is None:
        # curl drops a header that ends with its colon, and sends an empty one for a semicolon.
        return f"-H {shlex.quote(f'{name}: {text}' if text else f'{name};')}"

    def named(match: re.Match[str]) -> str:
        is_last = match.end() == len(match.string)
        name = variable(target, match[1])
        return f"${name}" if is_last and not by_hand else f"${{{name}}}"

    return f'-H "{name}: {KEY_PLACE.sub(named, _SHELL_SIGN.sub(_ESCAPED, text))}"'


def _data(body: Json | bytes) -> str:
    """Return the option that sends a body; only the start of a long body is shown."""
    option, text = "-d", ""
    if isinstance(body, bytes):
        option, size = "--data-binary", len(body)
        text = body[: _LONGEST_SHOWN + 1].decode(errors="backslashreplace")
    else:
        text = json.dumps(body, ensure_ascii=False)
        size = len(text.encode())
    if len(text) <= _LONGEST_SHOWN:
        return f"{option} {shlex.quote(text)}"
    return f"{option} @BODY  # {size} bytes that begin with {shlex.quote(text[:_SHOWN])}"


SHOWN_EVIDENCE: Final = 5
"""How many exchanges of a finding are shown in full."""
_GAP_NS: Final = 400_000_000
"""A pause that ends a burst; it is doubled while a timeline has too many entries."""
_MOST: Final = 60
_TOLD: Final = frozenset({Verdict.FAIL, Verdict.INCONCLUSIVE})


def timeline(finding: Finding, exchanges: Mapping[int, Exchange]) -> tuple[Moment, ...]:
    """Return the moments of a limit's finding, in order of time; none for other findings."""
    if finding.timeline or finding.verdict not in _TOLD:
        return finding.timeline
    if not finding.check.startswith("limits."):
        return ()
    own = sorted(
        (exchange for exchange in tuple(exchanges.values()) if exchange.check == finding.check),
        key=lambda exchange: exchange.sent_ns,
    )
    named = {
        number: "shown below" if place < SHOWN_EVIDENCE else "also decides"
        for place, number in enumerate(finding.evidence)
    }
    gap_ns = _GAP_NS
    moments = _moments(own, named, gap_ns)
    while len(moments) > _MOST and gap_ns < 1 << 40:
        gap_ns *= 2
        moments = _moments(own, named, gap_ns)
    return tuple(moments)


def status_of(moment: Moment) -> str:
    """Return the answer of a moment as reports write it: `50 x 200`."""
    status = "no answer" if moment.status is None else str(moment.status)
    return f"{moment.count} x {status}" if moment.count > 1 else status


def sender_of(moment: Moment) -> str:
    """Return the key and the address of a moment as reports write them."""
    where = f"from {moment.source}" if moment.source else ""
    return " ".join(filter(None, (moment.key or "no key", where)))


def _moments(own: Sequence[Exchange], named: Mapping[int, str], gap_ns: int) -> list[Moment]:
    parties: dict[tuple[str | None, str | None], list[Exchange]] = defaultdict(list)
    for exchange in own:
        parties[_party(exchange)].append(exchange)
    moments = []
    for (key, source), sent in parties.items():
        first = next((exchange.number for exchange in sent if exchange.refused), None)
        alone = [
            exchange for exchange in sent if exchange.number in named or exchange.number == first
        ]
        for exchange in alone:
            is_first = exchange.number == first
            asked = f"{exchange.ask.method} {exchange.ask.path.partition('?')[0]}"
            words = f"{asked}, {'the first refused' if is_first else named[exchange.number]}"
            moments.append(
                Moment(
                    at_ns=exchange.sent_ns,
                    status=exchange.status,
                    key=key,
                    source=source,
                    message=words,
                )
            )
        singled = {exchange.number for exchange in alone}
        rest = [exchange for exchange in sent if exchange.number not in singled]
        for burst in _bursts(rest, gap_ns):
            by_status: dict[int | None, list[Exchange]] = defaultdict(list)
            for exchange in burst:
                by_status[exchange.status].append(exchange)
            for status, alike in by_status.items():
                until_ns = alike[-1].sent_ns if len(alike) > 1 else None
                moments.append(
                    Moment(
                        at_ns=alike[0].sent_ns,
                        until_ns=until_ns,
                        count=len(alike),
                        status=status,
                        key=key,
                        source=source,
                    )
                )
    return sorted(moments, key=lambda moment: moment.at_ns)


def _bursts(sent: Iterable[Exchange], gap_ns: int) -> list[list[Exchange]]:
    bursts: list[list[Exchange]] = []
    for exchange in sent:
        if bursts and exchange.sent_ns - bursts[-1][-1].sent_ns <= gap_ns:
            bursts[-1].append(exchange)
        else:
            bursts.append([exchange])
    return bursts
