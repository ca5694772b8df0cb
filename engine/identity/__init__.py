"""Identity: who is asking, and what they may do (seed 5).

`keys` makes and reads API-key texts, `permissions` is the list of rights and who may hold them,
`caller` is a known principal with its grants.
"""

from engine.identity.caller import Caller
from engine.identity.keys import (
    REGION_FORM,
    REGION_RULE,
    KeyText,
    check_region,
    is_legacy_text,
    new_key_text,
)
from engine.identity.origins import ORIGIN_FORM, make_origins
from engine.identity.permissions import ADMINISTRATIVE, PERMISSIONS, make_grants

__all__ = [
    "ADMINISTRATIVE",
    "ORIGIN_FORM",
    "PERMISSIONS",
    "REGION_FORM",
    "REGION_RULE",
    "Caller",
    "KeyText",
    "check_region",
    "is_legacy_text",
    "make_grants",
    "make_origins",
    "new_key_text",
]
