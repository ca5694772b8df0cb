"""Section 8.10: how large a batch file may be, and that a volume can be split over several jobs.

A file of 30·10⁶ bytes must be accepted and one of more than 30·2²⁰ refused (D-UNITS). Sizes in
between are not judged.
"""

from __future__ import annotations

from typing import Final

from conformance.context.answers import is_refused, member_of, must_be_there, text_of
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext, Lane
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange

_SECOND_NS: Final = 1_000_000_000
_LEAST_BYTES: Final = 30_000_000
_MOST_BYTES: Final = 30 * 1_048_576
_HEADER: Final = b"token,expiration_year,expiration_month\n"
_ROW: Final = b"7d9c3a52-6c0e-4d11-9a50-3f2b8e1c4d77,2031,12\n"
_SHORT_ROW: Final = _ROW.replace(b",12\n", b",1\n")
_CSV: Final = {"Content-Type": "text/csv"}
_WAITS: Final = 20
_CONFLICT: Final = 409
_FEW: Final = _HEADER + 20 * _ROW
_FEW_MORE: Final = _FEW + _ROW


def batch_file(size_bytes: int) -> bytes:
    """Return a valid batch file of exactly this many bytes.

    >>> len(batch_file(1_000_000))
    1000000
    """
    # Shorten as many rows by one byte as there are bytes too many.
    rows = -(-(size_bytes - len(_HEADER)) // len(_ROW))
    short = len(_HEADER) + rows * len(_ROW) - size_bytes
    assert short <= rows, "a file of few rows cannot have every size"
    return _HEADER + _SHORT_ROW * short + _ROW * (rows - short)


def _address(ctx: CheckContext, job: Exchange) -> str:
    """Return the upload address of a new job as a path; `Inconclusive` if it is elsewhere."""
    path = (text_of(job, "upload_url") or "").removeprefix(ctx.target.base_url)
    if not path.startswith("/"):
        raise Inconclusive(f"no job with an upload_url at the target was made ({job.status})")
    return path


@check(
    "account-updater.file",
    "ACC-FILE",
    accepts="2xx for a file of 30*10^6 bytes, any 4xx for one of more than 30*2^20",
    roles=("management",),
    requests=6,
    load="stalling",
)
async def file(ctx: CheckContext) -> list[Finding]:
    """A batch file holds at most 30 MB."""
    lane = ctx.lane("file", key=ctx.spread_key("management"))
    sent = []
    for size_bytes in (0, _LEAST_BYTES, _MOST_BYTES + 1):
        body = batch_file(size_bytes) if size_bytes else _FEW
        job = await lane.call("create_account_updater_job")
        must_be_there("create_account_updater_job", job)
        path = _address(ctx, job)
        sent.append(await lane.insist("PUT", path, body, key=None, headers=_CSV))
    small, below, above = sent
    if not small.ok:
        raise Inconclusive(f"a small file is not accepted ({small.status})")
    return [
        ctx.acceptance("ACC-FILE", f"{_LEAST_BYTES} bytes", below),
        ctx.refusal("ACC-FILE", f"{_MOST_BYTES + 1} bytes", above),
    ]


@check(
    "account-updater.jobs",
    "ACC-SPLIT",
    accepts="several jobs at the same time, each with its own file, each completed",
    roles=("management",),
    requests=12,
    takes_ns=2 * _SECOND_NS,
)
async def jobs(ctx: CheckContext) -> list[Finding]:
    """A volume split into two files is processed by two jobs that exist at the same time."""
    key = ctx.spread_key("management")
    lanes = [ctx.lane(f"job {number}", key=key) for number in (1, 2)]
    made = [await lane.call("create_account_updater_job") for lane in lanes]
    must_be_there("create_account_updater_job", made[0])
    if made[0].status == _CONFLICT:  # a job of another check or of another client exists
        message = f"a job must be created whatever other jobs exist, got {made[0].status}"
        return [ctx.fails("ACC-SPLIT", message, made[0])]
    if made[0].ok and is_refused(made[1]):
        message = f"a second job must be created while the first exists, got {made[1].status}"
        return [ctx.fails("ACC-SPLIT", message, *made)]
    paths = [_address(ctx, job) for job in made]
    ids = [member_of(job, "id") for job in made]
    if len(set(paths)) == 1 or None in ids or ids[0] == ids[1]:
        message = "each job must have its own id and its own upload_url"
        return [ctx.fails("ACC-SPLIT", message, *made)]
    sent = []
    for lane, address in zip(lanes, paths, strict=True):
        sent.append(await lane.insist("PUT", address, _FEW, key=None, headers=_CSV))
    if not all(exchange.ok for exchange in sent):
        statuses = " and ".join(str(exchange.status) for exchange in sent)
        message = f"both files must be accepted while neither job has completed, got {statuses}"
        return [ctx.fails("ACC-SPLIT", message, *sent)]
    findings = [await _end(ctx, lane, job) for lane, job in zip(lanes, made, strict=True)]
    second = await lanes[0].insist("PUT", paths[0], _FEW_MORE, key=None, headers=_CSV)
    if is_refused(second):
        message = f"a second file for one job is refused: {second.status}"
        findings.append(ctx.passes("ACC-SPLIT", message, second))
    else:
        message = f"a second file for one job gets {second.status}"
        findings.append(ctx.informs("ACC-SPLIT", message, second))
    return findings


async def _end(ctx: CheckContext, lane: Lane, job: Exchange) -> Finding:
    """Wait until a job completes, for at most 20 s."""
    for _ in range(_WAITS):
        seen = await lane.call("get_account_updater_job", {"id": job.json["id"]})
        status = text_of(seen, "status")
        if status in {"completed", "failed"} or status is None:
            break
        await lane.sleep_ns(_SECOND_NS)
    if status == "completed":
        return ctx.passes("ACC-SPLIT", "the job completed", job, seen)
    message = f"the job was not seen to complete: {status or seen.status}"
    return ctx.unsettled("ACC-SPLIT", message, job, seen)
