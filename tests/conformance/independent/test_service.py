"""The independent service answers as the specification says, whoever stands in front of it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from conformance.target import Target
from tests.conformance.independent.deployment import deployment

CARD = {"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2030}


def _ask(target: Target, role: str, body: Any) -> tuple[int, Any]:
    key = next(key for key in target.keys if key.role == role)
    request = urllib.request.Request(
        target.base_url + "/tokenize",
        json.dumps(body).encode(),
        {"SVC-API-KEY": key.value, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_it_mirrors_deduplicates_and_limits(tmp_path: Path, processes: int) -> None:
    with deployment(tmp_path / "service", processes=processes) as path:
        target = Target.from_toml(path)
        status, body = _ask(
            target, "private_prod", {"a": "x", "b": [{"type": "card", "data": CARD}]}
        )
        assert status == 201
        assert body["b"][0]["mask"]["number"] == "XXXXXXXXXXXX4242"
        assert _ask(target, "private_prod", ["1"] * 6)[0] == 422
        assert _ask(target, "private_no_permission", ["1"])[0] == 403
        first = _ask(target, "dedup", ["same"])[1]
        assert _ask(target, "dedup_reader", ["same"])[1] == first
        statuses = [_ask(target, "private_test", ["1"])[0] for _ in range(110)]
        assert statuses.count(201) in (50, 100)  # 100 where a window's edge lies inside the burst
        assert set(statuses) == {201, 429}
