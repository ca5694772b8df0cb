# %% [markdown]
# # Which choices a deployment has made
# Where the specification leaves a choice, two deployments may differ and both be right. The suite
# fails no permitted choice: it finds out which one a deployment has made, and the next run can
# check that the deployment keeps to it.
#
# Clauses: LIM-PUBLIC, LIM-THROTTLE, LIM-BLOCK, TOK-LIMIT, REC-CARD-MASK, TOK-DEDUP.

# %% [markdown]
# **Predict before you read on.** A deployment shows a masked card only under `mask`, where our
# engine shows it under `mask` and `data`. Does the deployment fail a clause?

# %%
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

import conformance
from conformance import deploy
from engine import LimitTable, Profile, choices
from simulator import caller, refused, spans, strip, trace

_ = alt.renderers.enable("svg")
folder = Path(tempfile.mkdtemp())


def differing(profile: Profile) -> dict[str, Any]:
    """Return the fields in which a profile differs from the default, with their values."""
    return {one.path: one.of(profile) for one in choices() if one.of(profile) != one.default}


# %% [markdown]
# ## A deployment with other choices
# This deployment shows a card's mask only under `mask`, counts elements where we count tokens, and
# answers 413 over a quota. It merges what a duplicate request sends, and counts rates by a token
# bucket. Every one of these is a field of the *profile*.

# %%
truth = Profile().replace(
    tokens={"card_view": "mask", "limit_counts": "elements", "limit_status": 413},
    dedup={"record": "update_existing"},
    limits={"algorithm": "token-bucket"},
)
other = deploy(profile=truth)
pd.Series(differing(truth)).to_frame("value")

# %% [markdown]
# ## What the suite finds
# The suite gets only the address and the keys.

# %%
report = conformance.run(other.target, transport=other.transport, seed=7)
readings = report.readings()
values = {one.path: (one.of(truth), one.default) for one in choices()}
print(report.verdict_line)
assert not (report.clauses["verdict"] == "fail").any(), "another choice is no failure"
assert set(differing(truth)) <= set(readings), "every choice that differs was found"
assert all(values[path][0] == value for path, value in readings.items())
frame = pd.DataFrame({"found": readings, "default": {path: values[path][1] for path in readings}})
frame[frame["found"] != frame["default"]]

# %% [markdown]
# A single answer shows some choices, such as where a card's mask is (REC-CARD-MASK). Only the times
# at which a deployment refuses show how it counts a limit. So a probe compares the answers with
# those that each algorithm could have given.

# %%
burst = [4.0] * 50 + [4 + n / 10 for n in range(1, 200)]
tester = caller("POST", "/tokens", tenant="test")
counted = [
    trace(burst, tester, algorithm=name).assign(who=name)
    for name in ("sliding-log", "fixed-window", "token-bucket")
]
assert len({tuple(each["outcome"]) for each in counted}) == 3
log, window, bucket = (refused(each) for each in counted)
assert spans(log).startswith("4-13, ")
assert spans(window).startswith("4-9, ")
assert {round(b - a, 1) for a, b in pairwise(bucket)} == {0.2}, "every other request"
strip(pd.concat(counted))

# %% [markdown]
# The client sends a burst of 50 at 4 s, then ten a second. The sliding log refuses until the burst
# is 10 s old, and the fixed window until its next start. The token bucket admits every other
# request, as it refills five a second. The three differ in what they refuse.
#
# ## The profile as a file
# The result is in the report's folder, as `profile.discovered.toml`. The engine can load it and
# then behaves like that deployment: a simulation or a replay with this profile shows what *that*
# service would do.

# %%
report.save(folder)
discovered = folder / "profile.discovered.toml"
text = discovered.read_text(encoding="utf-8")
print(text[text.index("[limits]") :].partition("\n\n")[0])
assert Profile.from_toml(discovered) == truth

# %% [markdown]
# ## Check that a deployment keeps its choices
# As long as a choice is open, every permitted value passes. Suppose that the deployment changes:
# its next release counts by fixed windows. A suite without a profile accepts that and only reports
# another choice (LIM-PUBLIC, LIM-THROTTLE).


# %%
def run(
    profile: Profile, told: Path | None, limits: LimitTable | None = None
) -> conformance.Report:
    deployment = deploy(profile=profile, limits=limits)
    return conformance.run(
        deployment.target,
        transport=deployment.transport,
        profile=told,
        seed=7,
        select=["LIM-PUBLIC", "LIM-LEGACY"],
    )


changed = truth.replace(limits={"algorithm": "fixed-window"})
open_run = run(changed, None)
print(open_run.verdict_line)
print("found:", open_run.readings()["limits.algorithm"])
assert (open_run.clauses["verdict"] == "pass").all()
assert open_run.readings()["limits.algorithm"] == "fixed-window"

# %% [markdown]
# Suppose that somebody who knows the deployment has confirmed the discovered profile, and the
# target names it. The unchanged deployment still passes. The changed one now fails.

# %%
told_run = run(changed, discovered)
same = run(truth, discovered)
verdicts = pd.DataFrame(
    {
        "changed, without profile": open_run.clauses["verdict"],
        "changed, with profile": told_run.clauses["verdict"],
        "unchanged, with profile": same.clauses["verdict"],
    }
)
assert (same.clauses["verdict"] == "pass").all()
assert (told_run.clauses["verdict"] == "fail").any()
assert told_run.result("LIM-LEGACY").word == "fail"
verdicts

# %% [markdown]
# ## One request too many
# A limit of 51 a minute in place of 50 is detected whether or not the suite knows how the
# deployment counts. The message is the same.

# %%
sliding = folder / "sliding.toml"
sliding.write_text('[limits]\nalgorithm = "sliding-log"\n', encoding="utf-8")
generous = LimitTable.default().replace_rule("LIM-PUBLIC", rate="51/1m")
found = [run(Profile(), told, limits=generous).result("LIM-PUBLIC") for told in (None, sliding)]
print(found[0].word, found[0].message, sep=": ")
assert [one.word for one in found] == ["fail", "fail"]
assert found[0].message == found[1].message
assert found[0].message.startswith("bursts on fresh counters admitted 51")
shutil.rmtree(folder)

# %% [markdown]
# ## What was learnt
# Another choice is reported and does not fail. If the target names a profile, a change of a
# choice in it fails.
#
# ## Exercise
# Which choices differ between the default profile and one that answers 413 above the Tokenize
# Limit?

# %% tags=["answer"]
one_choice = differing(Profile().replace(tokens={"limit_status": 413}))
print(*(f"{path} = {value}" for path, value in one_choice.items()), sep="\n")
assert one_choice == {"tokens.limit_status": 413}
