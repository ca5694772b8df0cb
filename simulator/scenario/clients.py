"""The clients of a scenario: which requests they send, how they retry, how they pace themselves.

What a client does, step by step (both drivers do exactly this):

- *Closed loop*: the client has `concurrency` loops (default 1), all with the client's key, address
  and pacing. From `start` to `stop` a loop repeats: think, send a request, wait for its end. So the
  first request comes one think time after the start.
- *Open loop*: requests begin at the times of `arrivals`, independent of earlier ones. With
  `concurrency` c at most c are under way; later ones wait in order of arrival until one ends. The
  wait counts: in the deadline, in the latency of the first attempt, and as pending.
- A *request* is one or more *attempts*. Its content (entry of the mix, body, key, address) is drawn
  once, so all its attempts are equal. It succeeds with the first 2xx answer. It fails with an
  answer that is not retried or belongs to the last attempt; or at its deadline, if the next attempt
  would begin only then or later. An attempt under way at the deadline is still waited for.
- An attempt begins when the pacing allows. An admitted attempt is answered after `service` (plus
  the time of a proxy's destination or a reactor, plus the delay that a limit imposes); a refused
  attempt is answered at once. The next attempt begins after the retry's delay, counted from the
  answer.
- Nothing begins at or after the group's `stop` or the run's end. An attempt under way then is still
  answered. A request that would retry or give up only then or later stays as it is: it does not
  free its loop or place, and it counts as pending. So does a request that is answered at the run's
  end or later. So up to any point in time, a run does the same as every longer run.
- At the same time, the service's own events come first, then clients in order of number; for one
  client, answers and deadlines first, then attempts by attempt number and request number; the
  further files of split jobs come after all requests, in the order in which they began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from engine.files import (
    Alias,
    Duration,
    Integer,
    Items,
    Kind,
    Number,
    Rate,
    RateText,
    Spot,
    TextType,
)
from simulator.scenario.draws import Arrivals, Constant, Draw, Drawn

_NAME = TextType(r"[A-Za-z0-9_-]+", "must be letters, digits, - and _")

NAME: TypeAlias = Annotated[str, _NAME, "name, which no other of these has"]
"""The form of a name that other parts of the scenario refer to."""


@dataclass(frozen=True)
class Names(Kind[tuple[str, ...]]):
    """One name or an array of names; a tuple in Python."""

    def read(self, spot: Spot) -> tuple[str, ...]:
        if isinstance(spot.value, str):
            return (TextType().read(spot),)
        if not isinstance(spot.value, list | tuple):
            spot.fail("must be a name or an array of names")
        return Items(TextType()).read(spot)

    def write(self, value: tuple[str, ...]) -> Any:  # noqa: ANN401 # reason: a text or an array
        return value[0] if len(value) == 1 else list(value)

    def schema(self, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        array = Items(TextType()).schema(definitions)
        return {"anyOf": [{"type": "string", "minLength": 1}, array]}


_ONE_A_MINUTE: Final = Rate(1, 60_000_000_000)
_NO_TIME: Final = Constant()

_Attempts: TypeAlias = Annotated[
    int, Integer(minimum=1, maximum=10_000), "attempts in all, including the first"
]
_Honour: TypeAlias = Annotated[
    bool, "wait at least the whole seconds of the answer's Retry-After, if it has one"
]
_Statuses: TypeAlias = Annotated[
    tuple[int, ...],
    Alias("on"),
    Items(Integer(minimum=400, maximum=599), minimum=1),
    "statuses that are retried",
]


@dataclass(frozen=True, kw_only=True)
class NoRetry:
    """No retries: the answer to the first attempt ends the request."""

    kind: Literal["none"] = "none"


@dataclass(frozen=True, kw_only=True)
class FixedRetry:
    """The same delay before every retry."""

    kind: Literal["fixed"] = "fixed"
    delay_ns: Annotated[int, Duration(1), "delay before a retry"]
    attempts: _Attempts = 5
    honour_retry_after: _Honour = True
    statuses: _Statuses = (429,)


@dataclass(frozen=True, kw_only=True)
class _Backoff:
    """Delays that grow from retry to retry, up to a cap."""

    kind: str
    base_ns: Annotated[int, Duration(1), "delay before the first retry"]
    cap_ns: Annotated[int, Duration(1), "longest delay, not below `base`"]
    attempts: _Attempts = 5
    honour_retry_after: _Honour = True
    statuses: _Statuses = (429,)


@dataclass(frozen=True, kw_only=True)
class ExponentialRetry(_Backoff):
    """Exponential without jitter: min(cap, base · 2^n) before retry n = 0, 1 and on."""

    kind: Literal["exponential"] = "exponential"


@dataclass(frozen=True, kw_only=True)
class FullJitter(_Backoff, Drawn):
    """Full jitter: uniform in [0, min(cap, base · 2^n)] before retry n = 0, 1 and on."""

    kind: Literal["full-jitter"] = "full-jitter"
    base_ns: Annotated[int, Duration(1), "upper end of the first retry's delay"]


@dataclass(frozen=True, kw_only=True)
class DecorrelatedJitter(_Backoff, Drawn):
    """Decorrelated jitter: min(cap, uniform in [base, 3 · previous delay]); previous = base first.

    So the first retry waits from base to 3 · base. `previous` is the last value of this formula
    within the request, not the wait that Retry-After may have extended.
    """

    kind: Literal["decorrelated-jitter"] = "decorrelated-jitter"
    base_ns: Annotated[int, Duration(1), "least delay"]


Retry: TypeAlias = NoRetry | FixedRetry | ExponentialRetry | FullJitter | DecorrelatedJitter
"""What a client does after an answer that it retries.

With `honour_retry_after` it waits max(own delay, Retry-After in whole seconds), which may exceed
`cap`; its own delay is drawn in any case, so that the flag changes no other draw.
"""


@dataclass(frozen=True, kw_only=True)
class TokenBucketPacing:
    """A bucket of `burst` tokens, full at the client's start, refilled continuously at `rate`.

    Every attempt, including retries, takes one token and begins as soon as there is one. Waiting
    attempts take tokens in order of arrival; one that still waits at its request's deadline leaves
    the queue and takes none.
    """

    kind: Literal["token-bucket"] = "token-bucket"
    rate: Annotated[Rate, RateText(is_mean=True), "the pace"]
    burst: Annotated[int, Integer(minimum=1), "tokens that the bucket holds"] = 1


@dataclass(frozen=True, kw_only=True)
class AimdPacing:
    """AIMD: the pace r falls by a percentage with each 429 and grows with each other answer.

    An attempt begins no earlier than 1 / r after the one before began. An answer with status 429
    takes `decrease_percent` of r away, any other adds `increase`, within [minimum, maximum]. r is
    kept in thousandths of a request per second. It belongs to one client, is shared by its loops,
    and applies to attempts that begin after the answer.
    """

    kind: Literal["aimd"] = "aimd"
    start: Annotated[Rate, "the pace at the start"]
    minimum: Annotated[Rate, "lowest pace"] = _ONE_A_MINUTE
    maximum: Annotated[Rate, "highest pace"]
    increase: Annotated[
        float, Number(minimum=0.001, maximum=1_000_000), "requests per second added by an answer"
    ] = 0.1
    decrease_percent: Annotated[
        int, Integer(minimum=1, maximum=99), "percentage of the pace that a 429 takes away"
    ] = 50


Pacing: TypeAlias = TokenBucketPacing | AimdPacing
"""How a client limits its own pace."""


@dataclass(frozen=True, kw_only=True)
class Dealing:
    """How an ordered pool of K keys or addresses is assigned to the clients of a group.

    per = "client": once, at the start. Without `zipf`, the client with number i (from 0 within its
    group) gets member i mod K; with it, each client draws member r = 1 … K with weight r^−zipf.
    per = "request": for every new request (not for its retries). Without `zipf`, request j of
    client i gets member (i + j) mod K; with it, each request draws.
    """

    zipf: Annotated[
        float | None, Number(minimum=0, maximum=10), "Zipf exponent; by default even"
    ] = None
    per: Annotated[Literal["client", "request"], "assign once per client or for each request"] = (
        "client"
    )


@dataclass(frozen=True, kw_only=True)
class TypeWeights:
    """Relative shares of the token types."""

    token: Annotated[float, Number(minimum=0), "weight of tokens of type `token`"] = 1.0
    card: Annotated[float, Number(minimum=0), "weight of tokens of type `card`"] = 0.0


@dataclass(frozen=True, kw_only=True)
class Ask:
    """An entry of a request mix: which request is sent, and how often.

    The path's `{id}` stands for an object of that resource that the client's application has
    created in this run, chosen by `pick`; if there is none yet, a UUID of no object.

    The body:
    - `POST /tokenize`: `tokens` elements (drawn evenly from [tokens, tokens_max]), each a card with
      probability card / (token + card), in the given shape. Without `shape`: "plain" when cards
      have no weight, else "array".
    - `POST /tokens`, `POST /token-intents`: one token request object of a type drawn likewise.
    - `POST /detokenize`: `tokens` expressions over tokens that are picked like `{id}`.
    - `POST /tokens/search`: a query for one of those tokens.
    - `POST /reactors`: code of `size` characters; `POST /reactors/{id}/react`: arguments of `size`.
    - `/proxy…`: a body of `size` bytes to `proxy`.
    - `POST /account-updater/jobs`: creates a job and, at its answer, uploads a batch file of `size`
      bytes to it (a PUT without key: LIM-IP counts it); with `split` a volume above the service's
      file limit becomes several files, one job each, begun together (ACC-SPLIT); the client waits
      for the last one. The upload begins at the job's answer, as a request of its own.
    Anything else has no body, or a small one.
    """

    request: Annotated[
        str,
        TextType(
            r"(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) /[^\s?#]*(\?[^\s#]*)?",
            'must be a method and a path, such as "POST /tokenize"',
        ),
        'method and path, such as "POST /tokenize"',
    ]
    weight: Annotated[float, Number(minimum=0), "relative weight in the mix"] = 1.0
    tokens: Annotated[
        int, Integer(minimum=0, maximum=100_000), "number of tokens or expressions"
    ] = 1
    tokens_max: Annotated[
        int | None,
        Integer(minimum=0, maximum=100_000),
        "largest number; draws from `tokens` to this",
    ] = None
    types: Annotated[TypeWeights, "shares of the token types"] = TypeWeights()
    shape: Annotated[
        Literal["object", "plain", "array", "composite"] | None, "shape of a tokenize body"
    ] = None
    duplicate_share: Annotated[
        float,
        Number(minimum=0, maximum=1),
        "probability that an element repeats a value that its group sent before",
    ] = 0.0
    invalid_share: Annotated[
        float, Number(minimum=0, maximum=1), "probability that one element of a body is invalid"
    ] = 0.0
    cvc: Annotated[bool, "cards carry a cvc"] = True
    pick: Annotated[
        Literal["newest", "oldest", "uniform"], "which known object `{id}` stands for"
    ] = "newest"
    size_bytes: Annotated[int, "size of a payload, of code or of an uploaded file"] = 1_000
    split: Annotated[bool, "split an upload above the file limit into several jobs"] = False
    reactor: Annotated[str | None, TextType(), "name of a [[reactors]], the `{id}` of its path"] = (
        None
    )
    proxy: Annotated[str | None, TextType(), "name of a [[proxies]]"] = None
    via: Annotated[
        Literal["key", "host"], "name the proxy by its key, or by its custom hostname"
    ] = "key"

    @property
    def is_job(self) -> bool:
        """Whether an upload follows its answer."""
        return self.request.partition("?")[0] == "POST /account-updater/jobs"

    def files(self, limit_bytes: int) -> int:
        """Return how many files a job has, each of `limit_bytes` at most where it splits."""
        return max(1, -(-self.size_bytes // limit_bytes)) if self.split else 1


@dataclass(frozen=True, kw_only=True)
class ClientGroup:
    """A group of `count` clients that behave alike, in a closed or an open loop.

    The docstring of this module says what each client does, step by step.
    applications: their keys, in order, each application's ordinary keys before its legacy keys,
    form the pool that `keys` assigns from. Without applications, requests carry no API key.
    addresses: the pool of addresses, assigned by the pool's `deal`; by default each client has its
    own address.
    """

    name: NAME
    count: Annotated[int, Integer(minimum=0, maximum=10_000_000), "how many clients"] = 1
    applications: Annotated[
        tuple[str, ...], Alias("application"), Names(), "name of an application, or a list of names"
    ] = ()
    keys: Annotated[Dealing, "how keys are assigned to clients"] = Dealing()
    addresses: Annotated[str | None, TextType(), "name of an [[addresses]]"] = None
    loop: Annotated[
        Literal["closed", "open"], "closed: wait for the answer before the next request"
    ] = "closed"
    think: Annotated[Draw | None, "closed loop: time before each request"] = None
    arrivals: Annotated[Arrivals | None, "open loop: when requests begin"] = None
    mix: Annotated[tuple[Ask, ...], "which requests are sent"] = (Ask(request="POST /tokenize"),)
    retry: Annotated[Retry, "what the client does after a refusal"] = NoRetry()
    pacing: Annotated[Pacing | None, "how the client limits its own pace"] = None
    concurrency: Annotated[
        int | None,
        Integer(minimum=1),
        "closed: loops per client (default 1); open: requests under way, later arrivals wait "
        "(default: no bound)",
    ] = None
    deadline_ns: Annotated[
        int | None,
        Duration(1),
        "a request fails this long after its start unless an attempt is under way; a later answer "
        "is no success",
    ] = None
    service: Annotated[Draw, "time the service takes to answer an admitted request"] = _NO_TIME
    start_ns: Annotated[int, "when the clients begin, since the run's start"] = 0
    stop_ns: Annotated[
        int | None, "when they stop, since the run's start; unfinished requests stay pending"
    ] = None
