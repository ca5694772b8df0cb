"""The account updater: takes a batch file of tokens, returns it with newer card data (D-JOBS).

    POST /account-updater/jobs      → 201, `upload_url`, in this answer only, valid for an hour
    PUT upload_url                  → 204; a file of at most 30 MB (ACC-FILE), no API key (D-SPLIT)
    GET /account-updater/jobs/{id}  → pending → processing → completed | failed
    GET download_url                → the result, once completed; with the right to read jobs

Both addresses are paths on this service. The upload path lies outside /account-updater/, so that an
upload counts only in LIM-IP, whatever key its sender adds. Its secret is in the query, which our
logs never show. A wrong secret and an unknown job are both 404, an expired address 403, a second
file for one job 409: each job takes one file, and jobs run in parallel (ACC-SPLIT).

A file is processed at the upload, in short transactions. Its job then takes `job_base_ns` and
`job_row_ns` per row: the result is stored at once and shown from `ends_at_ns` on, so that there is
no background work. An invalid file makes its job fail with the line and the rule; so does an
upload address that expires unused.

A card is updated when its expiry in the vault differs from the file's: `updated` gives the vault's
expiry, `no_change` nothing. Other results are `not_a_card` and `unknown_token`; a token is known
where the job's creator holds account-updater:job:create (D-GRANT). No card network is asked.

Batch files are CSV in both directions (section 8.10, D-JOBS):

    in   token,expiration_year,expiration_month
    out  the same and new_token,new_expiration_year,new_expiration_month,result_code

A token is a UUID; year (1000 to 9999) and month (1 to 12) may be empty. A byte order mark, CRLF and
empty lines are accepted. Reading stops at the first fault; the message names its line and rule,
never a value.

A file holds at most 30 MB (ACC-FILE), so a larger volume is cut into several, with one job a file
(ACC-SPLIT). The caller splits it (D-SPLIT), with `split_batch`.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import hmac
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeAlias, get_args

from engine.errors import InputError, wrong_type
from engine.identity import Caller, secret_text
from engine.messages import Problem, Response
from engine.model import Job, JobResult, JobStatus, LogEntry, Token
from engine.profile import Profile
from engine.resources.bodies import check_coding, read_raw
from engine.resources.documents import Collection
from engine.resources.identification import hash_key_text, principal_of
from engine.resources.operation import (
    FAILED_STATUS,
    INSTANT,
    MADE,
    OWNED,
    Context,
    Operation,
    View,
    carry_out,
)
from engine.store import Store
from engine.tokens.stored import timestamp

HEADER: Final = "token,expiration_year,expiration_month"
RESULT_HEADER: Final = HEADER + ",new_token,new_expiration_year,new_expiration_month,result_code"

_TOKEN: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CHUNK_BYTES: Final = 65_536
_YEAR: Final = re.compile(r"(?:[1-9][0-9]{3})?")
_MONTH: Final = re.compile(r"(?:0?[1-9]|1[0-2])?")
_RULES: Final = (
    (_TOKEN, "token must be a UUID"),
    (_YEAR, "expiration_year must be a year from 1000 to 9999, or empty"),
    (_MONTH, "expiration_month must be a month from 1 to 12, or empty"),
)
_ROW: Final = re.compile(",".join(form.pattern for form, _ in _RULES))


BatchLine: TypeAlias = tuple[str, int | None, int | None]
"""A token id in lower case, and the year and month of expiry that its sender knows."""


class BatchFault(Exception):
    """A batch file is invalid: the message names the line and the rule, never a value.

    rows: how many valid rows came before it.
    """

    def __init__(self, line: int, rule: str, rows: int) -> None:
        super().__init__(f"line {line}: {rule}")
        self.rows = rows


def read_batch(data: bytes) -> Iterator[BatchLine]:
    """Read the rows of a batch file; raises `BatchFault` at the first line that is wrong."""
    _check_utf8(data)
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")  # decodes as it is read
    lines = csv.reader(text, strict=True)
    rows = 0
    try:
        if next(lines, None) != HEADER.split(","):
            raise BatchFault(1, f"must be {HEADER}", 0)
        for fields in lines:
            if not fields:
                continue
            if len(fields) != len(_RULES):
                raise BatchFault(lines.line_num, f"must hold {len(_RULES)} fields", rows)
            token_id, year, month = fields[0].lower(), fields[1], fields[2]
            if _ROW.fullmatch(f"{token_id},{year},{month}") is None:
                values = zip((token_id, year, month), _RULES, strict=True)
                broken = (rule for value, (form, rule) in values if form.fullmatch(value) is None)
                raise BatchFault(lines.line_num, next(broken), rows)
            yield token_id, int(year) if year else None, int(month) if month else None
            rows += 1
    except csv.Error:
        raise BatchFault(lines.line_num, "must be CSV as in RFC 4180", rows) from None


def _check_utf8(data: bytes) -> None:
    """Raise `BatchFault` at the first line that is no UTF-8, without the whole text in memory."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data) + 1, _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        try:
            decoder.decode(data[start:end], final=end > len(data))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, start) + error.object.count(b"\n", 0, error.start) + 1
            raise BatchFault(line, "must be UTF-8", 0) from None


def batch_lines(rows: Iterable[BatchLine]) -> Iterator[bytes]:
    r"""Return the lines of a batch file, its header first, from (token id, year, month) rows.

    >>> list(batch_lines([("c1f4", 2030, None)]))
    [b'token,expiration_year,expiration_month\n', b'c1f4,2030,\n']
    """
    yield f"{HEADER}\n".encode()
    for token_id, year, month in rows:
        yield f"{token_id},{year or ''},{month or ''}\n".encode()


def split_batch(
    volume: bytes | Iterable[bytes],
    limit_bytes: int = Profile().account_updater.file_limit_bytes,
) -> Iterator[bytes]:
    r"""Split a batch into files of at most `limit_bytes`, each with the header (ACC-SPLIT).

    volume: one CSV with its header, as bytes, as an open binary file, or in pieces of any size; it
    is read as the files are taken. Together the files hold every line, in order. A volume without
    a line gives no file. Raises `InputError` for a line that fits into no file.

    >>> [file.decode() for file in split_batch(b"token\na\nb\nc", 10)]
    ['token\na\nb\n', 'token\nc\n']
    """
    _check_split(volume, limit_bytes)
    lines = _lines((volume,) if isinstance(volume, bytes) else volume)
    header = next(lines, None)
    if header is None:
        return
    held, size_bytes = [header], len(header)
    if size_bytes > limit_bytes:
        raise _misfit(1, header, limit_bytes)
    for number, line in enumerate(lines, 2):
        if len(header) + len(line) > limit_bytes:
            raise _misfit(number, line, limit_bytes)
        if size_bytes + len(line) > limit_bytes:
            yield b"".join(held)
            held, size_bytes = [header], len(header)
        held.append(line)
        size_bytes += len(line)
    yield b"".join(held)


def _check_split(volume: object, limit_bytes: object) -> None:
    if isinstance(volume, str) or not isinstance(volume, Iterable):
        raise wrong_type("volume", volume, "bytes, an open binary file, or pieces of bytes")
    if isinstance(limit_bytes, bool) or not isinstance(limit_bytes, int):
        raise wrong_type("limit_bytes", limit_bytes, "a whole number of bytes")


def _misfit(number: int, line: bytes, limit_bytes: int) -> InputError:
    return InputError(
        f"line {number} of {len(line)} bytes must fit, with the header, into a file of "
        f"{limit_bytes} bytes; raise limit_bytes or mend the line"
    )


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return whole lines, each with its end, the last one too."""
    begun: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun) + b"\n"
            begun = [other]
    last = b"".join(begun)
    if last:
        yield last + b"\n"


_CREATE: Final = "account-updater:job:create"
_READ: Final = "account-updater:job:read"
_PLACE: Final = "/account-updater/"
_ROWS_A_TRANSACTION: Final = 1_000
_UNUSED_ERROR: Final = "no file was uploaded in time"


def _status(job: Job, steady_ns: int) -> JobStatus:
    """Return the job's status by now; its final status is stored from the upload on."""
    if job.ends_at_ns is None:
        return "failed" if steady_ns >= job.upload_until_ns else "pending"
    return job.status if steady_ns >= job.ends_at_ns else "processing"


VIEW: Final = View(
    {
        **OWNED,
        "status": {"enum": list(get_args(JobStatus))},
        **MADE,
        "upload_expires_at": INSTANT,
    }
)


def _to_json(job: Job, context: Context) -> dict[str, Any]:
    status = _status(job, context.steady_ns)
    document = VIEW.of(job, status=status, upload_expires_at=timestamp(job.upload_until_ns))
    if status == "completed":
        document["download_url"] = f"/account-updater/jobs/{job.id}/result"
    if status == "failed":
        document["error"] = (
            _UNUSED_ERROR if job.ends_at_ns is None else _opened(job, context).decode()
        )
    return document


def _opened(job: Job, context: Context) -> bytes:
    services = context.services
    result = services.store.get(JobResult, job.id)
    assert result is not None, "it was stored with the job's end"
    keys = services.vault.of(job.tenant_id)
    return zlib.decompress(keys.open(_PLACE, job.id, result.sealed_content, job.status))


_JOBS: Final = Collection(
    kind=Job,
    name="account updater job",
    short_name="job",
    path="/account-updater/jobs",
    right="account-updater:job",
    to_json=_to_json,
)


def _create(context: Context) -> Response:
    context.require(_CREATE)
    services = context.services
    secret = secret_text(services.world.entropy)
    job = Job(
        services.new_id(),
        context.tenant.id,
        "pending",
        context.caller.application.id,
        context.wall_ns,
        context.steady_ns + services.profile.account_updater.upload_valid_ns,
        hash_key_text(secret),
    )
    return _JOBS.created(context, job, upload_url=f"/batch-files/{job.id}?secret={secret}")


def _result(context: Context) -> Response:
    context.require(_READ)
    job = _JOBS.requested(context)
    if _status(job, context.steady_ns) != "completed":
        raise Problem(409, "The job is not completed.", clause="D-JOBS")
    return Response(200, _opened(job, context), {"Content-Type": "text/csv; charset=utf-8"})


def _awaited(context: Context) -> Job:
    """Return the job that waits for the file of this address: 404, 403, 409 in this order."""
    job = context.services.store.get(Job, context.params["id"])
    sent = hash_key_text(context.query.get("secret", ""))
    if job is None or not hmac.compare_digest(sent, job.upload_hash):
        raise Problem(404, "There is nothing at this address.", clause="D-STATUSES")
    if context.steady_ns >= job.upload_until_ns:
        raise Problem(403, "The upload address has expired.", clause="D-JOBS")
    if job.ends_at_ns is not None:  # obeys ACC-SPLIT
        raise Problem(
            409, "The job has its file; larger volumes take one job a file.", clause="ACC-SPLIT"
        )
    return job


async def _upload(context: Context) -> Response:
    """Take a job's file: the address is checked before the file is read (ACC-FILE)."""
    services = context.services
    with services.store.transaction(write=False):
        tenant_id = _awaited(context).tenant_id
    check_coding(context.request)
    # obeys ACC-FILE
    limit_bytes = services.profile.account_updater.file_limit_bytes
    data = await read_raw(context.request, limit_bytes, "ACC-FILE")
    entry = LogEntry(
        services.new_id(),
        tenant_id,
        context.wall_ns,
        "account-updater:job:upload",
        "account-updater-job",
        context.params["id"],
        None,
        FAILED_STATUS,
    )

    def begin() -> Caller | None:
        return principal_of(services, _awaited(context).created_by)

    async def look_up(principal: Caller | None) -> tuple[JobStatus, bytes, int]:
        try:
            content, rows = await _looked_up(context, data, principal)
        except BatchFault as fault:
            return "failed", zlib.compress(str(fault).encode()), fault.rows
        return "completed", content, rows

    def finish(outcome: tuple[JobStatus, bytes, int]) -> Response:
        job = _awaited(context)
        status, content, rows = outcome
        profile = services.profile.account_updater
        sealed = services.vault.of(job.tenant_id).seal(_PLACE, job.id, content, status)
        duration_ns = profile.job_base_ns + rows * profile.job_row_ns
        clock = services.world.clock
        changed = dataclasses.replace(
            job,
            status=status,
            ends_at_ns=clock.steady_ns + duration_ns,
        )
        services.store.put(changed)
        services.store.put(JobResult(job.id, job.tenant_id, sealed, job.created_at_ns))
        return Response(204)

    return await carry_out(context, entry, begin, look_up, finish)


async def _looked_up(context: Context, data: bytes, principal: Caller | None) -> tuple[bytes, int]:
    """Return the compressed result and its rows, made in pieces so that other requests can run.

    It stands in the store as it is returned; sealing and writing it take as much memory twice.
    Raises `BatchFault` for an invalid file, `Problem` 503 where there is no memory.
    """
    store, world = context.services.store, context.services.world
    rows, count = read_batch(data), 0
    compressor = zlib.compressobj(level=1)
    parts = [compressor.compress(f"{RESULT_HEADER}\n".encode())]
    while piece := list(islice(rows, _ROWS_A_TRANSACTION)):
        with store.transaction(write=False):
            lines = [_result_line(row, _known(store, principal, row[0])) for row in piece]
        part = compressor.compress("".join(f"{line}\n" for line in lines).encode())
        world.reserve(3 * len(part))
        parts.append(part)
        count += len(lines)
        await world.sleep_ns(0)
    return b"".join((*parts, compressor.flush())), count


def _known(store: Store, principal: Caller | None, token_id: str) -> Token | None:
    """Return a token that the job's creator may have updated (D-GRANT)."""
    if principal is None:
        return None
    token = store.token(principal.tenant.id, token_id)
    if token is None or not principal.may(_CREATE, token.container):
        return None
    return token


def _result_line(row: BatchLine, token: Token | None) -> str:
    token_id, known_year, known_month = row
    given = f"{token_id},{known_year or ''},{known_month or ''}"
    if token is None:
        return f"{given},,,,unknown_token"
    if token.mask is None:
        return f"{given},,,,not_a_card"
    year = token.mask.get("expiration_year", known_year)
    month = token.mask.get("expiration_month", known_month)
    if (year, month) == (known_year, known_month):
        return f"{given},,,,no_change"
    return f"{given},{token.id},{year or ''},{month or ''},updated"


OPERATIONS = (
    _JOBS.creation(
        "Create a job; its upload address is in this answer only.",
        _create,
        clauses=("ACC-SPLIT",),
        body="none",
    ),
    _JOBS.listing("list_account_updater_jobs", "List the tenant's jobs."),
    _JOBS.view("Show a job."),
    Operation(
        name="get_account_updater_result",
        method="GET",
        path="/account-updater/jobs/{id}/result",
        summary="Download the result file of a completed job.",
        run=_result,
        permission=_READ,
        is_costly=True,  # a result may hold 60 MB
    ),
    Operation(
        name="upload_batch_file",
        method="PUT",
        path="/batch-files/{id}",
        summary="Upload a job's batch file; the address itself is the right to do so.",
        run_async=_upload,
        clauses=("ACC-FILE", "ACC-SPLIT"),
        authentication="none",
        body="raw",
        body_limit_bytes=attrgetter("account_updater.file_limit_bytes"),
        query=("secret",),
        success_status=204,
    ),
)
