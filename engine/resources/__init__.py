"""Resources: one module per resource, and the registry of all operations.

`OPERATIONS` is the one list of what the service answers (`engine.resources.operation`).
"""

from typing import Final

from engine.resources import (
    account_updater,
    applications,
    detokenize,
    encryption_keys,
    logs,
    proxies,
    reactors,
    token_intents,
    tokenize,
    tokens,
)
from engine.resources.operation import Operation

__all__ = ["OPERATIONS", "Operation"]

OPERATIONS: Final[tuple[Operation, ...]] = (
    *tokenize.OPERATIONS,
    *tokens.OPERATIONS,
    *detokenize.OPERATIONS,
    *token_intents.OPERATIONS,
    *logs.OPERATIONS,
    *applications.OPERATIONS,
    *encryption_keys.OPERATIONS,
    *reactors.OPERATIONS,
    *proxies.OPERATIONS,
    *account_updater.OPERATIONS,
)
