"""Resources: one module per resource, and the registry of all operations.

`OPERATIONS` is the one list of what the service answers (`engine.resources.operation`).
"""

from typing import Final

from engine.resources import (
    account_updater,
    applications,
    proxies,
    reactors,
    tokenize,
    tokens,
)
from engine.resources.operation import Operation

__all__ = ["OPERATIONS", "Operation"]

OPERATIONS: Final[tuple[Operation, ...]] = (
    *tokenize.OPERATIONS,
    *tokens.OPERATIONS,
    *applications.OPERATIONS,
    *reactors.OPERATIONS,
    *proxies.OPERATIONS,
    *account_updater.OPERATIONS,
)
