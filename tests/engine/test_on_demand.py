"""Public names that are imported when they are first asked for."""

from __future__ import annotations

from types import ModuleType

import pytest

import conformance
import engine
import simulator


@pytest.mark.parametrize("package", [engine, simulator, conformance])
def test_a_package_has_its_public_names_and_says_so_of_no_other(package: ModuleType) -> None:
    assert dir(package) == sorted(package.__all__)
    assert all(getattr(package, name) is getattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match=f"^module '{package.__name__}' has no attribute"):
        package.nothing_of_this_name  # noqa: B018 # reason: asking is what is tried
    assert not hasattr(package, "nothing_of_this_name")
