"""The table of policies: what limit tables and profiles change in scenarios, paired by seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import simulator
from engine.errors import InputError
from engine.files import Rate
from engine.limits import LimitTable
from simulator.cli import main
from simulator.progress import Interrupted
from simulator.scenario import Scenario, dump, load
from simulator.study.policies import AS_IT_STANDS, policies


@pytest.fixture
def generous(tmp_path: Path) -> str:
    """Return a limit table whose management limit is above what the script of the loop sends."""
    return _table(tmp_path / "generous.toml", 300)


@pytest.fixture
def strict(tmp_path: Path) -> str:
    """Return a limit table whose management limit is below what the paced script sends."""
    return _table(tmp_path / "strict.toml", 100)


def _table(file: Path, limit_requests: int) -> str:
    rate = Rate(limit_requests, 60 * 10**9)
    file.write_text(
        LimitTable.default().replace_rule("LIM-MANAGEMENT", rate=rate).to_toml(), "utf-8"
    )
    return str(file)


def test_each_policy_has_a_line_a_group(generous: str, strict: str) -> None:
    """Four requests a second pass under 300 a minute; three a second do not under 100."""
    found = policies("management-loop", limits=[generous, strict])
    table: dict[Any, Any] = found.table.set_index(["policy", "group"]).to_dict("index")
    assert list(dict.fromkeys(found.table["policy"])) == [AS_IT_STANDS, generous, strict]
    assert table[AS_IT_STANDS, "hasty-script"]["shut_out_s"] == 60, "the block (LIM-MANAGEMENT)"
    assert table[generous, "hasty-script"]["refused_share"] == 0
    assert table[generous, "hasty-script"]["attempts_per_success"] == 1
    assert table[strict, "paced-script"]["refused_share"] > 0.3


def test_scenarios_of_one_name_are_told_apart_by_another(generous: str) -> None:
    """The table's lines go by name, so those of two scenarios would be one's."""
    text = dump(load("management-loop"))
    with pytest.raises(InputError) as caught:
        policies([text, text.replace("seed = 7", "seed = 8")], limits=[generous])
    assert str(caught.value) == (
        "scenarios: name = 'management-loop' must be of one scenario; it names the lines of the"
        " table"
    )


def test_differences_are_paired(generous: str) -> None:
    """A difference is that of the same seeds; where nothing is random it is exact."""
    frame = policies("management-loop", limits=[generous]).frame
    share = frame[(frame["metric"] == "refused_share") & (frame["policy"] == generous)]
    line = share.set_index("group").loc["hasty-script"]
    assert line["low"] == line["high"] == line["mean"] - line["as_it_stands"]
    assert line["sure"]
    same = frame[frame["policy"] == AS_IT_STANDS]
    assert (same["low"] == 0).all()
    assert (same["high"] == 0).all()


def test_dominated_policies_are_not_marked(strict: str) -> None:
    """A table that refuses more and lets no smaller peak in is dominated by the seed's own."""
    best = policies("management-loop", limits=[strict]).best.set_index("policy")
    assert best.loc[AS_IT_STANDS, "non_dominated"]
    assert not best.loc[strict, "non_dominated"]
    assert best.loc[strict, "dominated_by"] == AS_IT_STANDS


def test_limits_and_profiles_are_crossed(generous: str, strict: str, tmp_path: Path) -> None:
    """Two tables and a profile make two policies beside the scenario as it stands."""
    profile = tmp_path / "bucket.toml"
    profile.write_text('[limits]\nalgorithm = "token-bucket"\n', "utf-8")
    scenarios: list[str | Scenario] = ["management-loop", simulator.load("retry-storm")]
    found = policies(scenarios, limits=[generous, strict], profiles=[profile], replications=2)
    assert len(found.best) == 2 * 3
    assert set(found.best["policy"]) == {
        AS_IT_STANDS,
        f"{generous}, {profile}",
        f"{strict}, {profile}",
    }


def test_bad_input_is_one_line(generous: str, tmp_path: Path) -> None:
    """No file, or one that is not there or no table, is named before anything is played."""
    with pytest.raises(InputError, match="give one of them"):
        policies("management-loop")
    with pytest.raises(InputError, match=r"limits = .*none\.toml"):
        policies("management-loop", limits=[generous, tmp_path / "none.toml"])
    broken = tmp_path / "broken.toml"
    broken.write_text("[[rule]]\nid = 3\n", "utf-8")
    with pytest.raises(InputError, match=r"broken\.toml"):
        policies("management-loop", limits=[broken])


def test_an_interrupt_keeps_the_policies_that_were_played(generous: str) -> None:
    """Ctrl-C at the second policy: the first one's lines are known."""

    def told(text: str) -> None:
        if generous in text:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as interrupted:
        policies("management-loop", limits=[generous], progress=told)
    found = interrupted.value.result
    assert set(found.table["policy"]) == {AS_IT_STANDS}
    assert found.unfinished == "it was interrupted"


def test_a_command_that_is_interrupted_writes_what_is_known(
    generous: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C at the first policy leaves empty tables, and a page that says why."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.study.policies.observe", stopped)
    out = tmp_path / "out"
    assert main(["compare", "management-loop", "--limits", generous, "--out", str(out)]) == 130
    assert f"written to {out}" in capsys.readouterr().out
    assert "Unfinished: it was interrupted." in (out / "policies.html").read_text("utf-8")


def test_the_command(generous: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compare SCENARIO --limits FILE` prints the table, and keeps it where it is told to."""
    out = tmp_path / "out"
    assert main(["compare", "management-loop", "--limits", generous, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Pareto-optimal" in printed
    assert sorted(path.name for path in out.iterdir()) == [
        "non_dominated.csv",
        "policies.csv",
        "policies.html",
    ]
    header = (out / "policies.csv").read_text("utf-8").partition("\n")[0]
    assert header.startswith("scenario,policy,group,metric,"), "no column of line numbers"
    json_too = ["--json", "--out", str(tmp_path / "other")]
    assert main(["compare", "management-loop", "--limits", generous, *json_too]) == 0
    assert json.loads(capsys.readouterr().out)[0]["policy"] == AS_IT_STANDS


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["management-loop"], "compare takes two runs' folders, or scenarios with --limits"),
        (["a", "b", "--replications", "3"], "--replications = 3 must go with --limits"),
        (["a", "--limits", "x", "--precision", "0.1"], "--precision = 0.1 must go with two runs'"),
    ],
)
def test_flags_that_do_not_fit(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags of the other kind of comparison are refused by name."""
    assert main(["compare", *words]) == 2
    assert says in capsys.readouterr().err
