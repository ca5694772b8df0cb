# %% [markdown]
# # Test whether a deployment conforms
# The suite sends a deployment requests, as a client can, and gives a verdict for each clause with
# the requests that show it.
#
# Clauses: all that a client can observe; examined here are TOK-ATOMIC, TOK-LIMIT, LIM-MANAGEMENT
# and QUO-RATE.

# %% [markdown]
# **Predict before you read on.** A deployment stores the valid half of a request and refuses the
# rest. Which clause fails?

# %%
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

import altair as alt
import pandas as pd

import conformance
from conformance import Deployment, all_faults, deploy, fault_of
from engine import CLAUSES, LimitTable
from simulator import caller, decide

_ = alt.renderers.enable("svg")

# %% [markdown]
# ## The target
# A *target* names a deployment's address and the keys to use: `python -m conformance init
# target.toml` writes one to fill in. Here the deployment is an engine in this process. Its clock
# jumps, so a minute of waiting takes no time. The same checks run over HTTP, except for generated
# requests: they add little without real HTTP.

# %%
good = deploy()
roles = pd.Series([key.role for key in good.target.keys]).value_counts(sort=False)
assert (roles.head(5) == 8).all(), "so that checks can run side by side on keys of their own"
roles.head(5).rename_axis("role").to_frame("keys")

# %% [markdown]
# ## A run
# `python -m conformance run target.toml` does the same, and prints the report.

# %%
report = conformance.run(good.target, transport=good.transport, seed=7)
print(report.verdict_line)
assert report.exit_code == 0
assert len(report.clauses) == len(CLAUSES)
assert set(report.clauses["verdict"]) == {"pass", "not-observable"}
assert (report.clauses["verdict"] == "not-observable").sum() == 1
report.clauses["verdict"].value_counts().to_frame("clauses")

# %% [markdown]
# No clause fails. One cannot be observed: no answer shows which limit table a tenant's `Rate Limit`
# quota names (QUO-RATE), and the suite reports that instead of a pass. Since the generated requests
# were left out, the report says that the run is *partial*.

# %%
assert report.partial
assert report.result("QUO-RATE").word == "not-observable"

# %% [markdown]
# ## Why it takes minutes
# The 51st request shows that a limit is 50 a minute and not 60. What takes minutes is the window:
# only waiting shows that the counter has room again after 60 s, and a block shows only at a time
# when the window has room again. So the probes of limits run concurrently, each on its own keys and
# addresses. The two rules of 2,000 requests run alone, so that they disturb no other measurement.

# %%
made = report.requests_made
probes = made[made["check"].str.startswith("limits.LIM-")]
seen = pd.DataFrame(
    {
        "rule": probes["check"].str.removeprefix("limits."),
        "second": probes["sent_ns"] // 10**9,
        "refused": probes["status"] == 429,
    }
)
cells = seen.groupby(["rule", "second"], as_index=False)["refused"].mean()
cells["until"] = cells["second"] + 1
cells["outcome"] = cells["refused"].gt(0).map({True: "some refused", False: "all admitted"})
SHOWN_S = 600
print(report.floor_ns // 10**9, "s at least; retentions of a day are waited for in virtual time")
assert set(cells["rule"]) <= {clause.id for clause in CLAUSES}
assert cells["rule"].nunique() == 14, "a probe for each row of the limit table"
assert report.floor_ns <= report.took_ns
public = seen[seen["rule"] == "LIM-PUBLIC"]
assert public["second"].max() >= 60, "the last request comes a window after the first"
wider = LimitTable.default().replace_rule("LIM-PUBLIC", rate="60/1m")
burst, asker = [0] * 51, caller("POST", "/tokens", kind="public")
assert [decide(burst, asker, table=each)[50].admitted for each in (None, wider)] == [False, True]
alt.Chart(
    cells[cells["second"] < SHOWN_S],
    width=520,
    height=260,
    description="Seconds in which each of fourteen probes sent requests, and whether some were"
    " refused. Those of windows of a minute send requests again after 60 s.",
).mark_rect(aria=False).encode(
    x=alt.X("second:Q", title="seconds of the run"),
    x2="until",
    y=alt.Y("rule:N", title="probe of"),
    color=alt.Color(
        "outcome:N",
        title="in this second",
        scale=alt.Scale(domain=["all admitted", "some refused"], range=["#9db8dc", "#d55e00"]),
    ),
)

# %% [markdown]
# A probe finds where refusals begin, waits until the window must have ended, and sends requests
# again.
#
# ## A deployment that fails
# The suite contains known-bad deployments: for every clause that can be observed, the real engine
# with one small change. In this one a request with an invalid token is refused, as it must be, but
# its valid tokens are created all the same (TOK-ATOMIC).

# %%
fault = fault_of("partial-creation")
print(fault.description)
bad = deploy(engine=fault.engine)
folder = Path(tempfile.mkdtemp())
found = conformance.run(
    bad.target,
    transport=bad.transport,
    seed=7,
    select=["TOK-ATOMIC", "TOK-LIMIT", "TOK-ARRAY"],
    out=folder,
)
print(found.verdict_line)
found.clauses[["verdict", "status", "findings"]]

# %%
verdicts = found.clauses["verdict"]
assert verdicts.to_dict() == {"TOK-ARRAY": "pass", "TOK-ATOMIC": "fail", "TOK-LIMIT": "pass"}
assert found.exit_code == 1
observable = {clause.id for clause in CLAUSES if clause.unobservable is None}
assert {each.clause for each in all_faults().values()} == observable, "none is taken on trust"

# %% [markdown]
# Only the broken clause fails: a request above the Tokenize Limit is refused here as it must be, so
# TOK-LIMIT passes. `python -m conformance selftest` runs the checks against every known-bad
# deployment, and fails if one of them passes.
#
# ## The evidence
# Each finding states in a sentence what was expected and what was observed. It names the exchanges
# that show it as curl commands, with a shell variable in place of each key.

# %%
findings = found.findings.query("verdict == 'fail'")
print(f"{len(findings)} findings that fail, such as: {findings['says'].iloc[0]}")
first = next(one for one in found.result("TOK-ATOMIC").findings if one.verdict.word == "fail")
evidence = found.evidence(first)
for shown in evidence:
    print(f"\n{shown['curl']}\n-> {shown['status']}")
secrets = [key.value for key in bad.target.keys if key.value]
assert not any(secret in shown["curl"] for shown in evidence for secret in secrets)

# %% [markdown]
# The first request is refused with 400. The second sends the card of the first again, alone, with
# deduplication. If the first had created nothing, the card would not be deduplicated.

# %%
refusal, witness = evidence
print("_extras:", json.dumps(json.loads(witness["body"])["_extras"]))
assert (refusal["status"], witness["status"]) == (400, 200)
assert json.loads(witness["body"])["_extras"] == {"deduplicated": True}

# %% [markdown]
# ## Run a failed check again
# The folder of a run holds the report as a page, as JSON and as JUnit for a build server, and the
# whole history. After a fix, `python -m conformance replay FOLDER TOK-ATOMIC` repeats what failed,
# with the same seed.

# %%
print(*sorted(file.name for file in folder.iterdir()), sep="\n")


def replayed(deployment: Deployment) -> str:
    report = conformance.replay(
        folder, deployment.target, ["TOK-ATOMIC"], transport=deployment.transport
    )
    return report.result("TOK-ATOMIC").word


outcomes = {
    "the first time": found.result("TOK-ATOMIC").word,
    "not fixed": replayed(deploy(engine=fault.engine)),
    "fixed": replayed(deploy()),
}
assert list(outcomes.values()) == ["fail", "fail", "pass"]
pd.Series(outcomes).to_frame("TOK-ATOMIC")

# %% [markdown]
# ## What a run does not show
# Without a management key the limit of management applications cannot be seen. The clause is
# *skipped*, with the reason, and the run is *partial*: it finds no failure, and does not report
# that the deployment conforms. With `--strict` the exit code is 1 as well.

# %%
fewer = dataclasses.replace(
    good.target, keys=tuple(key for key in good.target.keys if key.role != "management")
)
there = deploy()
partial = conformance.run(
    fewer, transport=there.transport, seed=7, select=["LIM-MANAGEMENT"], strict=True
)
print(partial.result("LIM-MANAGEMENT").word, "-", partial.result("LIM-MANAGEMENT").message)
print(partial.verdict_line)
assert partial.partial
assert partial.result("LIM-MANAGEMENT").word == "skipped"
assert partial.exit_code == 1
assert "conformant" not in partial.verdict_line
shutil.rmtree(folder)

# %% [markdown]
# ## What was learnt
# A run gives a verdict for each clause, with the requests that show it. A clause that could not be
# tested is skipped with the reason, and makes the run partial.
#
# ## Exercise
# Run only the checks of the token record (`REC-`) against a good deployment. Does any clause fail?

# %% tags=["answer"]
mine_there = deploy()
records_alone = conformance.run(
    mine_there.target, transport=mine_there.transport, seed=7, select=["REC-"], no_limits=True
)
print((records_alone.clauses["verdict"] == "pass").sum(), "clauses pass")
assert not (records_alone.clauses["verdict"] == "fail").any()
