"""Faults of the quotas (seed 8.8): counts and retentions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.faults.registry import fault_of_quotas
from engine.model import DEFAULT_QUOTAS

__all__: list[str] = []


@fault_of_quotas("quota-of-ten", "QUO-TENANT")
def _quota_of_ten(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tenant's quotas do not start at the defaults: both token limits are 10."""
    del quotas
    return {"Tokenize Limit": 10, "Detokenize Limit": 10}


@fault_of_quotas("own-quota-ignored", "QUO-LOG")
def _own_quota_ignored(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the operator has set for one tenant is not in force: all have the defaults."""
    return {name: value for name, value in DEFAULT_QUOTAS.items() if quotas[name] != value}


@fault_of_quotas("tokenize-one-more", "QUO-TOKENIZE")
def _tokenize_one_more(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """One token more than the Tokenize Limit may be created."""
    return {"Tokenize Limit": quotas["Tokenize Limit"] + 1}


@fault_of_quotas("tokenize-one-less", "QUO-TOKENIZE")
def _tokenize_one_less(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request with as many tokens as the Tokenize Limit says is refused."""
    return {"Tokenize Limit": quotas["Tokenize Limit"] - 1}


@fault_of_quotas("detokenize-one-more", "QUO-DETOKENIZE")
def _detokenize_one_more(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """One token more than the Detokenize Limit may be read."""
    return {"Detokenize Limit": quotas["Detokenize Limit"] + 1}


@fault_of_quotas("detokenize-unlimited", "QUO-DETOKENIZE")
def _detokenize_unlimited(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Any number of tokens may be read in one request."""
    del quotas
    return {"Detokenize Limit": 1_000_000}


def _doubled(quotas: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {name: 2 * quotas[name]}


def _halved(quotas: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {name: quotas[name] // 2}


@fault_of_quotas("cvc-kept-too-long", "QUO-CVC")
def _cvc_kept_too_long(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cvc is readable for twice its retention."""
    return _doubled(quotas, "CVC Retention")


@fault_of_quotas("cvc-lost-early", "QUO-CVC")
def _cvc_lost_early(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cvc is gone after half its retention."""
    return _halved(quotas, "CVC Retention")


@fault_of_quotas("intent-kept-too-long", "QUO-INTENT")
def _intent_kept_too_long(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A token intent is readable for twice its retention."""
    return _doubled(quotas, "Token Intent Retention")


@fault_of_quotas("intent-lost-early", "QUO-INTENT")
def _intent_lost_early(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A token intent is gone after half its retention."""
    return _halved(quotas, "Token Intent Retention")


@fault_of_quotas("log-kept-too-long", "QUO-LOG")
def _log_kept_too_long(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A log entry is readable for twice its retention."""
    return _doubled(quotas, "Log Retention")


@fault_of_quotas("log-lost-early", "QUO-LOG")
def _log_lost_early(quotas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A log entry is gone after half its retention."""
    return _halved(quotas, "Log Retention")
