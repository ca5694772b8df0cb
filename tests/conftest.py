"""What every test shares: how hypothesis searches, and where the checkout lies.

Hypothesis draws the same examples in every run (`ci`), so that a red gate is red again on the
next machine. `HYPOTHESIS_PROFILE=search` looks for new ones: random, and ten times as many.
"""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", settings.get_profile("ci"), derandomize=False, max_examples=1000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


SLOW_TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests longer before they count as hung, where they do not say themselves."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


def pytest_collection_finish() -> None:
    """Leave what was collected out of every search for garbage: it lives as long as the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data(repository: Path) -> Path:
    """The folder of real logs beside the checkout; the test is skipped where it is missing."""
    data = repository.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("the real logs of ../shared/data are not beside this checkout")
    return data
