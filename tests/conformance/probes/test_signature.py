"""Which layer fired: probes of other counters, which must not fill those by themselves."""

from __future__ import annotations

import pytest

from conformance.in_process import deploy
from conformance.probes import signature
from conformance.running import Options, Run


def test_probes_that_are_sent_again_do_not_meet_the_other_resources_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIM-PATCH asks LIM-SEARCH's resource, which has room for 50 where its own has for 200."""
    monkeypatch.setattr(signature, "_size", lambda rate, lasts_ns: 20)
    monkeypatch.setattr(signature.Signature, "tells", property(lambda self: False))
    deployment = deploy()
    asked = Options(checks=("limits.LIM-PATCH",), select=("LIM-PATCH",), seed=1)
    report = Run(deployment.target, asked, transport=deployment.transport).execute()
    searches = [one for one in report.exchanges.values() if one.ask.path == "/tokens/search"]
    assert len(searches) == 40, "sent again, while there is room"
    assert not [one for one in searches if one.refused]
