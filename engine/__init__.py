"""The reference engine of a tokenization service, in process and pure.

    engine = Engine(profile=Profile(), limits=LimitTable.default(), clock=ManualClock(), seed=7)
    answer = engine.handle(Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=body))

The path of a request stands in `engine.service`, the ports to the world in `engine.world`, every
open choice of the specification in `engine.profile`, the limits in `engine.limits`.

Names are imported lazily, on first use, so that a program that needs only the limits starts fast.
"""

from typing import TYPE_CHECKING, Final

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from engine.clauses import CLAUSES, DECISIONS, Clause, OpenDecision
    from engine.errors import InputError, TollgateError
    from engine.http.app import asgi_app
    from engine.limits import Limiter, LimitTable, Rule, Subject
    from engine.messages import Decision, Problem, Request, Response
    from engine.profile import Choice, Profile, choices
    from engine.resources.account_updater import split_batch
    from engine.service import Engine
    from engine.store import MemoryStore, SqliteStore, Store
    from engine.vault.jwe import encrypt
    from engine.world import Call, CallAnswer, ManualClock, ModelWorld, VirtualLoop, World

__all__ = [
    "CLAUSES",
    "DECISIONS",
    "Call",
    "CallAnswer",
    "Choice",
    "Clause",
    "Decision",
    "Engine",
    "InputError",
    "LimitTable",
    "Limiter",
    "ManualClock",
    "MemoryStore",
    "ModelWorld",
    "OpenDecision",
    "Problem",
    "Profile",
    "Request",
    "Response",
    "Rule",
    "SqliteStore",
    "Store",
    "Subject",
    "TollgateError",
    "VirtualLoop",
    "World",
    "asgi_app",
    "choices",
    "encrypt",
    "split_batch",
]

_HOMES: Final = {
    "CLAUSES": "engine.clauses",
    "Call": "engine.world",
    "CallAnswer": "engine.world",
    "Choice": "engine.profile",
    "Clause": "engine.clauses",
    "DECISIONS": "engine.clauses",
    "Decision": "engine.messages",
    "Engine": "engine.service",
    "InputError": "engine.errors",
    "LimitTable": "engine.limits",
    "Limiter": "engine.limits",
    "ManualClock": "engine.world",
    "MemoryStore": "engine.store",
    "ModelWorld": "engine.world",
    "OpenDecision": "engine.clauses",
    "Problem": "engine.messages",
    "Profile": "engine.profile",
    "Request": "engine.messages",
    "Response": "engine.messages",
    "Rule": "engine.limits",
    "SqliteStore": "engine.store",
    "Store": "engine.store",
    "Subject": "engine.limits",
    "TollgateError": "engine.errors",
    "VirtualLoop": "engine.world",
    "World": "engine.world",
    "asgi_app": "engine.http.app",
    "choices": "engine.profile",
    "encrypt": "engine.vault.jwe",
    "split_batch": "engine.resources.account_updater",
}

__getattr__, __dir__ = on_demand(__name__, _HOMES)
