"""Which resources of the table a request falls under (D-COUNTED, D-GET-TOKENS)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import Classifier, LimitTable
from engine.profile import LimitsProfile
from tests.oracles.limits import matches_resource

PATTERNS = tuple(pattern for rule in LimitTable.default() for pattern in rule.match.resource)


def classify(
    method: str, path: str, patterns: tuple[str, ...], get_tokens: Any = "list"
) -> tuple[str, ...]:
    """Return those of the patterns that a request falls under."""
    classifier = Classifier(patterns, get_tokens)
    return tuple(classifier.patterns[place] for place in classifier.matching(method, path))


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("POST", "/tokens", ("POST /tokens",)),
        ("POST", "/tokens?x=1", ("POST /tokens",)),
        ("POST", "/tokenize", ("POST /tokenize",)),
        ("POST", "/tokens/search", ("POST /tokens/search",)),
        ("GET", "/tokens", ("GET /tokens",)),
        ("HEAD", "/tokens", ("GET /tokens",)),
        ("GET", "/tokens/7", ()),
        ("OPTIONS", "/tokens", ()),
        ("OPTIONS", "/account-updater/jobs", ("ANY /account-updater/*",)),
        ("PUT", "/account-updater/jobs/7", ("ANY /account-updater/*",)),
        ("GET", "/account-updater", ()),
        ("GET", "/account-updaters/jobs", ()),
        ("PATCH", "/tokens/7", ("PATCH /tokens/{id}",)),
        ("PATCH", "/tokens/7?a=/b", ("PATCH /tokens/{id}",)),
        ("PATCH", "/tokens/", ()),
        ("PATCH", "/tokens/7/8", ()),
        ("DELETE", "/tokens/7", ("DELETE /tokens/{id}",)),
        ("get", "/tokens", ()),
        ("POST", "/Tokens", ()),
        ("POST", "/tokens/", ()),
        ("POST", "", ()),
        ("POST", "/tokens\n", ()),
    ],
)
def test_a_request_falls_under_these_rows(method: str, path: str, wanted: tuple[str, ...]) -> None:
    assert classify(method, path, PATTERNS) == wanted


def test_reads_of_one_token_fall_under_the_row_by_prefix_where_the_profile_says_so() -> None:
    assert classify("GET", "/tokens/7", PATTERNS, "prefix") == ("GET /tokens",)
    assert classify("GET", "/tokensx", PATTERNS, "prefix") == ()
    assert classify("POST", "/tokens/7", PATTERNS, "prefix") == ()


@given(
    st.sampled_from(("GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS", "PUT")),
    st.lists(
        st.sampled_from(("tokens", "search", "account-updater", "7", "", "tokenize")), max_size=4
    ),
    st.sampled_from(("", "?", "?a=/tokens")),
    st.sampled_from(("list", "prefix")),
)
def test_the_classifier_is_the_oracles(
    method: str, segments: list[str], query: str, get_tokens: str
) -> None:
    path = "/" + "/".join(segments) + query
    profile = LimitsProfile(get_tokens=get_tokens)  # type: ignore[arg-type] # reason: drawn
    patterns = (*PATTERNS, "ANY /tokens/{id}/*", "GET /tokens/{id}")
    wanted = tuple(p for p in patterns if matches_resource(p, method, path, profile))
    assert classify(method, path, patterns, profile.get_tokens) == wanted


def test_the_memory_of_seen_paths_is_bounded() -> None:
    classifier = Classifier(PATTERNS)
    for number in range(70_000):
        classifier.matching("PATCH", f"/tokens/{number}")
    assert len(classifier._seen) <= 1 << 16
    assert len(classifier._groups) == 1
