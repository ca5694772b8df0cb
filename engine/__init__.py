"""The reference engine of a tokenization service, in process and pure.

    engine = Engine(profile=Profile(), limits=LimitTable.default(), clock=ManualClock(), seed=7)
    answer = engine.handle(Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=body))

`engine.service` defines the path of a request, `engine.world` the ports to the outside,
`engine.profile` every open choice of the specification, and `engine.limits` the rate limits.

Names are imported lazily, on first use, so that a program that needs only the limits starts fast.
"""

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from engine.clauses import CLAUSES as CLAUSES
    from engine.clauses import DECISIONS as DECISIONS
    from engine.clauses import Clause as Clause
    from engine.clauses import OpenDecision as OpenDecision
    from engine.errors import InputError as InputError
    from engine.errors import TollgateError as TollgateError
    from engine.http.app import asgi_app as asgi_app
    from engine.limits import KeyIdentity as KeyIdentity
    from engine.limits import Limiter as Limiter
    from engine.limits import LimitTable as LimitTable
    from engine.limits import NodesLimiter as NodesLimiter
    from engine.limits import RateLimitStatus as RateLimitStatus
    from engine.limits import Rule as Rule
    from engine.limits import Subject as Subject
    from engine.limits import TenantIdentity as TenantIdentity
    from engine.messages import Decision as Decision
    from engine.messages import Problem as Problem
    from engine.messages import Request as Request
    from engine.messages import Response as Response
    from engine.profile import Choice as Choice
    from engine.profile import Profile as Profile
    from engine.profile import choices as choices
    from engine.resources.account_updater import split_batch as split_batch
    from engine.service import Engine as Engine
    from engine.store import MemoryStore as MemoryStore
    from engine.store import SqliteStore as SqliteStore
    from engine.store import Store as Store
    from engine.vault.jwe import encrypt as encrypt
    from engine.world import Call as Call
    from engine.world import CallAnswer as CallAnswer
    from engine.world import ManualClock as ManualClock
    from engine.world import ModelWorld as ModelWorld
    from engine.world import VirtualLoop as VirtualLoop
    from engine.world import World as World

    __version__: str

__getattr__, __dir__, __all__ = on_demand(__name__)
