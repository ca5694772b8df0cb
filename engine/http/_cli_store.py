"""`python -m engine backup` and `rotate-key`: what an operator does with a kept store.

Both may be run while a server has the store open. A backup is a consistent snapshot. A rotation is
one transaction: after a kill, exactly one of the old and the new master key opens the whole store.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from engine.errors import InputError, VaultError
from engine.http._cli_serve import KEY_VARIABLE, kept_store, master_key_of

if TYPE_CHECKING:
    from engine.http.configuration import ServeConfig

__all__ = ["add_backup_arguments", "add_rotate_key_arguments", "backup", "rotate_key"]

_NEW_KEY_VARIABLE: Final = "TOLLGATE_NEW_MASTER_KEY"


def add_backup_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `backup`."""
    parser.description = (
        "Write a copy of a store, whole as of one instant, while it is being served or not. "
        "It opens with the same master key."
    )
    parser.add_argument("path", metavar="PATH", help="the file to make; it must not exist")
    _add_store(parser)


def add_rotate_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `rotate-key`."""
    parser.description = (
        "Put a store under a new master key. The old one is the configuration's, or stands in "
        f"{KEY_VARIABLE}; the new one stands in {_NEW_KEY_VARIABLE}: 32 bytes in base64 or hex. "
        "A server that has the store goes on, and is started with the new key the next time."
    )
    _add_store(parser)


def _add_store(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--store", metavar="PATH", help="the store's file")
    which.add_argument("--config", metavar="FILE", help="the serve.toml that names it")


def backup(args: argparse.Namespace) -> int:
    """Write the copy; says where."""
    from engine.store import back_up

    path, _ = _store_of(args)
    size_bytes = back_up(path, args.path)
    print(f"{args.path}: {size_bytes} bytes, a whole store")
    return 0


def rotate_key(args: argparse.Namespace) -> int:
    """Rotate; says how many tenants' keys it was."""
    from engine.http.configuration import read_master_key
    from engine.resources.upgrade import guard_store
    from engine.store import SqliteStore
    from engine.vault import Vault

    path, config = _store_of(args)
    old = master_key_of(config, path)
    given = os.environ.get(_NEW_KEY_VARIABLE)
    new = None if given is None else read_master_key(given)
    if new is None:
        raise InputError(f"{_NEW_KEY_VARIABLE} must be the new master key: 32 bytes, base64 or hex")
    if new == old:
        raise InputError(f"{_NEW_KEY_VARIABLE} must be another key than the one in force")
    with SqliteStore(path) as store:
        vault = Vault(old, os.urandom, store)
        try:
            with store.transaction():
                guard_store(store, vault)
                vault.rotate(new)
                count = len(store.secrets())
        except VaultError:
            raise InputError(
                f"master_key must be the one that {path} was made with; it does not open its keys"
            ) from None
    print(f"{path}: {count} keys are under the new master key; the old one opens none of them")
    return 0


def _store_of(args: argparse.Namespace) -> tuple[str, ServeConfig]:
    """Return the file of a store that exists, and the configuration beside it."""
    path, config = kept_store(args)
    if not os.path.isfile(path):  # noqa: PTH113 # reason: a path as it was given
        raise InputError(f"store = {path} must be a store that exists")
    return path, config
