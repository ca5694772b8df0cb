"""The profile's IPv6 prefix holds in a replay as it does over HTTP (D-IP)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Profile
from simulator import replay


@pytest.mark.parametrize("fidelity", ["limits", "compiled", "engine"])
@pytest.mark.parametrize("pseudonymise", [False, True])
def test_clients_of_one_prefix_are_one_client(
    tmp_path: Path, fidelity: str, *, pseudonymise: bool
) -> None:
    """LIM-PUBLIC: 50 requests a minute of one address and key; 60 come from 60 addresses."""
    lines = [
        f"2026-01-01T00:00:{second:02d}Z,2001:db8::{second:x},key,GET,/logs" for second in range(60)
    ]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["time,address,key,method,path", *lines]) + "\n")
    for bits, admitted in ((128, 60), (64, 50)):
        result = replay(
            log,
            format="csv",
            as_kind="public",
            profile=Profile().replace(http={"ipv6_prefix_bits": bits}),
            fidelity=fidelity,  # type: ignore[arg-type] # reason: one of the three
            pseudonymise=pseudonymise,
        )
        assert int((result.requests["outcome"] == "admitted").sum()) == admitted
