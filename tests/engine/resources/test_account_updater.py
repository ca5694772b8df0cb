"""Account-updater jobs, to the nanosecond (section 8.10, D-JOBS)."""

import io
import tracemalloc
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.model import Application
from engine.resources.account_updater import (
    HEADER,
    RESULT_HEADER,
    BatchFault,
    batch_lines,
    read_batch,
    split_batch,
)
from engine.store import SqliteStore
from engine.world import Bell, ModelWorld
from tests.engine.deployment import CARD
from tests.engine.resources.outside import SECOND_NS, Outside, Stream

JOBS = "/account-updater/jobs"
HOUR_NS = 3_600 * SECOND_NS
TOKEN = "8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f"


@pytest.fixture
def outside() -> Outside:
    return Outside()


def _file(*rows: tuple[str, int | None, int | None]) -> bytes:
    return b"".join(batch_lines(rows))


def _upload(outside: Outside, job: Any, file: Any) -> Any:
    return outside.ask("PUT", job["upload_url"], file, key=None)


def _job(outside: Outside, job: Any) -> Any:
    answer = outside.ask("GET", f"{JOBS}/{job['id']}")
    assert answer.status == 200
    return answer.body


def _finished(outside: Outside, file: bytes) -> Any:
    """Take a file through a job; returns the job as it stands when its time is over."""
    job = outside.made(JOBS, {})
    assert _upload(outside, job, file).status == 204
    outside.clock.advance_ns(SECOND_NS + 100_000 * (file.count(b"\n") + 1))
    return _job(outside, job)


def _result(outside: Outside, file: bytes) -> list[str]:
    """Take a file through a job; returns the result's lines without its header."""
    job = _finished(outside, file)
    assert job["status"] == "completed"
    answer = outside.ask("GET", job["download_url"])
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    header, *lines = answer.body.decode().splitlines()
    assert header == RESULT_HEADER
    return list(lines)


# --- the life of a job --------------------------------------------------------------------------


def test_a_job_from_end_to_end(outside: Outside) -> None:
    """D-JOBS: pending → processing → completed at base + rows, with addresses when they hold."""
    job = outside.made(JOBS, {})
    assert job["status"] == "pending"
    shown = _job(outside, job)
    assert shown == {k: v for k, v in job.items() if k != "upload_url"}
    assert outside.ask("GET", f"{JOBS}/{job['id']}/result").status == 409
    outside.clock.advance_ns(5)
    assert _upload(outside, job, _file((TOKEN, 2030, 1), (TOKEN, None, None))).status == 204
    outside.clock.advance_ns(SECOND_NS + 2 * 100_000 - 1)
    assert _job(outside, job)["status"] == "processing"
    assert "download_url" not in _job(outside, job)
    assert outside.ask("GET", f"{JOBS}/{job['id']}/result").status == 409
    outside.clock.advance_ns(1)
    done = _job(outside, job)
    assert done == {
        **shown,
        "status": "completed",
        "download_url": f"{JOBS}/{job['id']}/result",
    }
    assert outside.ask("GET", JOBS).body["data"] == [done]
    assert outside.ask("GET", done["download_url"]).status == 200
    ((entity, _, status),) = outside.logged("account-updater:job:create")
    assert (entity, status) == (job["id"], 201)
    assert outside.logged("account-updater:job:upload") == [(job["id"], None, 204)]


def test_a_list_of_jobs_reads_no_result(tmp_path: Path) -> None:
    """D-JOBS: results may hold 30 MB each; what is shown of a job does not need them."""
    outside = Outside(SqliteStore(tmp_path / "store.db"))
    file = _file(*[(TOKEN, 2030, 1)] * 20_000)
    for _ in range(4):
        assert _finished(outside, file)["status"] == "completed"
    assert _finished(outside, b"none")["status"] == "failed"
    tracemalloc.start()
    try:
        listed: Any = outside.ask("GET", JOBS).body
        shown = _job(outside, listed["data"][0])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [job["status"] for job in listed["data"]] == ["completed"] * 4 + ["failed"]
    assert listed["data"][4]["error"].startswith("line 1: must be token,")
    assert peak_bytes < len(file)
    assert len(outside.ask("GET", shown["download_url"]).body) > len(file)
    outside.engine.close()


@pytest.mark.parametrize(
    ("at_ns", "status", "shown"), [(-1, 204, "processing"), (0, 403, "failed")]
)
def test_an_upload_address_is_valid_for_an_hour(
    outside: Outside, at_ns: int, status: int, shown: str
) -> None:
    """D-JOBS: in [t, t + 1 h); a job whose address expires unused has failed and says why."""
    job = outside.made(JOBS, {})
    outside.clock.advance_ns(HOUR_NS + at_ns)
    assert _upload(outside, job, _file()).status == status
    assert _job(outside, job)["status"] == shown
    if shown == "failed":
        assert _job(outside, job)["error"] == "no file was uploaded in time"


def test_an_address_is_right_or_nothing_is_there(outside: Outside) -> None:
    """404 for a wrong secret as for an unknown job, with and without an API key."""
    job = outside.made(JOBS, {})
    path = job["upload_url"].partition("?")[0]
    unknown = f"/batch-files/{TOKEN}?secret=x"
    for url in (path, f"{path}?secret=", f"{path}?secret=wrong", unknown):
        for key in (None, outside.key):
            assert outside.ask("PUT", url, _file(), key=key).status == 404
    assert _job(outside, job)["status"] == "pending"


def test_a_coded_file_is_415_and_the_address_stays_open(outside: Outside) -> None:
    """ACC-FILE bounds what is sent, so nothing may unfold into more; the job waits on."""
    job = outside.made(JOBS, {})
    headers = {"content-encoding": "gzip"}
    coded = outside.ask("PUT", job["upload_url"], _file(), key=None, headers=headers)
    assert (coded.status, coded.headers["Accept-Encoding"]) == (415, "identity")
    assert _upload(outside, job, _file()).status == 204


def test_one_job_takes_one_file(outside: Outside) -> None:
    """ACC-SPLIT: 409 for a second one."""
    job = outside.made(JOBS, {})
    assert _upload(outside, job, _file()).status == 204
    assert _upload(outside, job, _file()).status == 409


def test_jobs_of_a_tenant_run_side_by_side(outside: Outside) -> None:
    """ACC-SPLIT: a split volume takes as long as its largest file."""
    volume = _file(*[(TOKEN, 2030, 1)] * 100)
    files = list(split_batch(volume, 40 + 45 * 30))
    assert len(files) == 4
    jobs = [outside.made(JOBS, {}) for _ in files]
    for job, file in zip(jobs, files, strict=True):
        assert _upload(outside, job, file).status == 204
    outside.clock.advance_ns(SECOND_NS + 100_000 * max(f.count(b"\n") - 1 for f in files))
    results = [outside.ask("GET", f"{JOBS}/{job['id']}/result").body for job in jobs]
    assert sum(result.count(b"\n") - 1 for result in results) == 100


# --- files --------------------------------------------------------------------------------------


def test_a_file_holds_30_mb(outside: Outside) -> None:
    """ACC-FILE: exactly 30,000,000 bytes pass, one more is 413 and the job still waits."""
    job = outside.made(JOBS, {})
    file = HEADER.encode() + b"\n"
    file += b"x" * (30_000_000 - len(file))
    answer = _upload(outside, job, file + b"x")
    assert (answer.status, answer.body["clause"]) == (413, "ACC-FILE")
    assert _job(outside, job)["status"] == "pending"
    assert _upload(outside, job, file).status == 204


def test_a_larger_file_is_not_read_to_its_end(outside: Outside) -> None:
    """ACC-FILE: 413 as soon as it is known; nothing is read for a wrong address (D-ORDER)."""
    stream = Stream(90_000_000)
    assert _upload(outside, outside.made(JOBS, {}), stream).status == 413
    assert stream.read_bytes == 30_000_001
    stream = Stream(90_000_000)
    assert outside.ask("PUT", f"/batch-files/{TOKEN}?secret=x", stream).status == 404
    assert stream.read_bytes == 0


def test_the_result_says_what_the_vault_holds(outside: Outside) -> None:
    """`updated` with the vault's expiry, `no_change`, `not_a_card`, `unknown_token`."""
    card = outside.tokenize(CARD)["id"]
    bare = outside.tokenize({"type": "card", "data": {"number": "5555555555554444"}})["id"]
    word = outside.tokenize(["Ada"])[0]
    lines = _result(
        outside,
        _file(
            (card, 2030, 12),
            (card, 2026, 12),
            (card, None, None),
            (bare, 2026, 1),
            (word, 2026, 1),
            (TOKEN, None, 1),
        ),
    )
    assert lines == [
        f"{card},2030,12,,,,no_change",
        f"{card},2026,12,{card},2030,12,updated",
        f"{card},,,{card},2030,12,updated",
        f"{bare},2026,1,,,,no_change",
        f"{word},2026,1,,,,not_a_card",
        f"{TOKEN},,1,,,,unknown_token",
    ]


def test_a_job_knows_what_its_creator_may_update(outside: Outside) -> None:
    """D-GRANT: tokens outside the grant, and another tenant's, are unknown."""
    card = outside.tokenize(CARD)["id"]
    rights = {"account-updater:job:create", "account-updater:job:read"}
    for container, code in (("/general/", "unknown_token"), ("/pci/", "no_change")):
        outside.key = outside.principal(rights, container=container)[1]
        assert _result(outside, _file((card, 2030, 12)))[0].endswith(f",{code}")
    other = outside.engine.create_tenant("Other")
    outside.key = outside.principal(rights, tenant=other)[1]
    assert _result(outside, _file((card, 2030, 12)))[0].endswith(",unknown_token")


def test_a_creator_who_is_gone_knows_nothing(outside: Outside) -> None:
    card = outside.tokenize(CARD)["id"]
    application, key = outside.principal({"account-updater:job:create"})
    job = outside.ask("POST", JOBS, {}, key=key).body
    store = outside.engine.services.store
    with store.transaction():
        store.delete(Application, application.id)
    _upload(outside, job, _file((card, 2030, 12)))
    outside.clock.advance_ns(2 * SECOND_NS)
    result = outside.ask("GET", _job(outside, job)["download_url"]).body
    assert result.endswith(b",unknown_token\n")


def test_a_file_that_is_none_makes_its_job_fail(outside: Outside) -> None:
    """The reason names the line and the rule, never a value; rows before it take their time."""
    job = outside.made(JOBS, {})
    assert _upload(outside, job, _file((TOKEN, 2030, 1)) + b"4242424242424242,,\n").status == 204
    outside.clock.advance_ns(SECOND_NS + 100_000 - 1)
    assert _job(outside, job)["status"] == "processing"
    assert "error" not in _job(outside, job)
    outside.clock.advance_ns(1)
    failed = _job(outside, job)
    assert (failed["status"], failed["error"]) == ("failed", "line 3: token must be a UUID")
    assert "download_url" not in failed
    assert outside.ask("GET", f"{JOBS}/{job['id']}/result").status == 409


@pytest.mark.parametrize("file", [None, b"", {"rows": []}])
def test_no_csv_at_all_fails_too(outside: Outside, file: Any) -> None:
    job = outside.made(JOBS, {})
    assert _upload(outside, job, file).status == 204
    outside.clock.advance_ns(SECOND_NS)
    assert _job(outside, job)["error"] == f"line 1: must be {HEADER}"


def test_a_header_alone_completes(outside: Outside) -> None:
    assert _result(outside, _file()) == []


# --- rights and limits --------------------------------------------------------------------------


def test_each_operation_asks_for_its_right(outside: Outside) -> None:
    """D-PERMISSIONS; another tenant's job is not there."""
    job = _finished(outside, _file())
    create, read = "account-updater:job:create", "account-updater:job:read"
    stranger = outside.principal({create, read}, tenant=outside.engine.create_tenant("Other"))[1]
    assert outside.ask("POST", JOBS, key=outside.key_with(read)).status == 403
    assert outside.ask("POST", JOBS, key=None).status == 401
    for path in (JOBS, f"{JOBS}/{job['id']}", job["download_url"]):
        assert outside.ask("GET", path, key=outside.key_with(create)).status == 403
        assert outside.ask("GET", path, key=None).status == 401
        assert outside.ask("GET", path, key=outside.key_with(read)).status == 200
        if path != JOBS:
            assert outside.ask("GET", path, key=stranger).status == 404


def test_an_upload_counts_for_the_address_only(outside: Outside) -> None:
    """D-SPLIT: LIM-IP alone; LIM-ACCOUNT-UPDATER never, even when a key is sent."""
    job = outside.made(JOBS, {})
    assert _upload(outside, job, _file()).decision.counted == ("LIM-IP",)
    keyed = outside.ask("PUT", job["upload_url"], _file())
    assert "LIM-ACCOUNT-UPDATER" not in keyed.decision.counted


def test_jobs_count_as_account_updater(outside: Outside) -> None:
    """LIM-ACCOUNT-UPDATER: 10 in 10 s."""
    answers = [outside.ask("POST", JOBS) for _ in range(11)]
    assert [a.status for a in answers] == [201] * 10 + [429]
    assert answers[-1].decision.rule == "LIM-ACCOUNT-UPDATER"


def test_nothing_of_a_file_lies_open_in_the_store(tmp_path: Path) -> None:
    """The result and the reason are sealed; no secret of an address is stored."""
    path = tmp_path / "store.db"
    outside = Outside(SqliteStore(path))
    card = outside.tokenize(CARD)["id"]
    job = _finished(outside, _file((card, 2026, 11)))
    failed = _finished(outside, b"nonsense\n")
    assert failed["error"].startswith("line 1")
    assert outside.ask("GET", job["download_url"]).body.endswith(b"2030,12,updated\n")
    fresh = outside.made(JOBS, {})
    outside.engine.close()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for secret in ("updated", "must be token", fresh["upload_url"].partition("=")[2]):
        assert secret.encode() not in held


def test_two_uploads_at_once_leave_one_file(outside: Outside) -> None:
    """Who finishes second gets 409; nothing stays open."""
    job = outside.made(JOBS, {})
    slow = outside.at(0, "PUT", job["upload_url"], _SlowStream(outside, _file()), key=None)
    quick = outside.at(5, "PUT", job["upload_url"], _file((TOKEN, 2030, 1)), key=None)
    outside.loop.run()
    assert (slow.result.status, quick.result.status) == (409, 204)
    assert outside.unfinished() == 0
    assert _job(outside, job)["status"] == "processing"


class _Unhurried(ModelWorld):
    """A world in which even letting others in between takes a nanosecond."""

    async def sleep_ns(self, for_ns: int, bell: Bell | None = None) -> None:
        await super().sleep_ns(max(1, for_ns), bell)


def test_two_files_looked_up_at_once_leave_one() -> None:
    """Nobody holds a transaction while a file is looked up; the job takes whoever ends first."""
    outside = Outside(world_class=_Unhurried)
    job = outside.made(JOBS, {})
    long = _file(*[(TOKEN, 2030, 1)] * 1_001)
    slow = outside.at(0, "PUT", job["upload_url"], long, key=None)
    quick = outside.at(0, "PUT", job["upload_url"], _file((TOKEN, 2030, 1)), key=None)
    outside.loop.run()
    assert [(t.result.status, t.ended_ns) for t in (slow, quick)] == [(409, 2), (204, 1)]
    assert outside.unfinished() == 0
    outside.clock.advance_ns(2 * SECOND_NS)
    assert outside.ask("GET", f"{JOBS}/{job['id']}/result").body.count(b"\n") == 2
    assert outside.logged("account-updater:job:upload") == [
        (job["id"], None, 204),
        (job["id"], None, 409),
    ]


class _SlowStream:
    """A body that takes 10 ns to arrive."""

    def __init__(self, outside: Outside, content: bytes) -> None:
        self._world = outside.engine.services.world
        self._content = content

    async def read(self, limit_bytes: int) -> bytes | None:
        assert limit_bytes == 30_000_000
        await self._world.sleep_ns(10)
        return self._content


# --- batch files (ACC-FILE, ACC-SPLIT) -----------------------------------------------------------


ROWS = st.lists(
    st.tuples(
        st.uuids().map(str),
        st.none() | st.integers(1000, 9999),
        st.none() | st.integers(1, 12),
    ),
    max_size=40,
)


@given(ROWS)
def test_what_is_written_is_read(rows: list[tuple[str, int | None, int | None]]) -> None:
    assert list(read_batch(b"".join(batch_lines(rows)))) == rows


def test_marks_ends_and_empty_lines_do_not_matter() -> None:
    text = f'\ufeff{HEADER}\r\n\r\n"{TOKEN.upper()}",2030,07\r\n\n{TOKEN},,'
    assert list(read_batch(text.encode())) == [
        (TOKEN, 2030, 7),
        (TOKEN, None, None),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"line 1: must be {HEADER}"),
        ("token,year,month\n", f"line 1: must be {HEADER}"),
        (f"{TOKEN},2030,1\n", f"line 1: must be {HEADER}"),
        (f"{HEADER}\n{TOKEN},2030\n", "line 2: must hold 3 fields"),
        (f"{HEADER}\n{TOKEN},2030,1,4242\n", "line 2: must hold 3 fields"),
        (f"{HEADER}\n{TOKEN},,\n4242424242424242,2030,1\n", "line 3: token must be a UUID"),
        (
            f"{HEADER}\n\n{TOKEN},30,1\n",
            "line 3: expiration_year must be a year from 1000 to 9999, or empty",
        ),
        (
            f"{HEADER}\n{TOKEN},2030,13\n",
            "line 2: expiration_month must be a month from 1 to 12, or empty",
        ),
        (f'{HEADER}\n{TOKEN},"2030,1\n', "line 2: must be CSV as in RFC 4180"),
        (f'{HEADER}\n{TOKEN},"20"30,1\n', "line 2: must be CSV as in RFC 4180"),
    ],
)
def test_the_first_fault_names_line_and_rule_and_no_value(text: str, said: str) -> None:
    with pytest.raises(BatchFault) as fault:
        list(read_batch(text.encode()))
    assert str(fault.value) == said


def test_what_is_no_text_is_named_by_line() -> None:
    with pytest.raises(BatchFault, match=r"^line 3: must be UTF-8$"):
        list(read_batch(f"{HEADER}\n{TOKEN},,\n".encode() + b"\xff\n"))


def test_a_fault_says_how_many_rows_were_fine() -> None:
    with pytest.raises(BatchFault) as fault:
        list(read_batch(b"".join(batch_lines([(TOKEN, 2030, 1)] * 5)) + b"x\n"))
    assert fault.value.rows == 5


# --- splitting ----------------------------------------------------------------------------------

LINES = st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=30)


@given(LINES, st.integers(1, 40), st.integers(1, 9))
def test_files_hold_every_line_in_order_within_the_limit(
    lines: list[bytes], limit_bytes: int, piece_bytes: int
) -> None:
    """ACC-SPLIT: each file has the header, none exceeds the limit or has room for a line more."""
    whole = b"\n".join(lines)
    pieces = [whole[i : i + piece_bytes] for i in range(0, len(whole), piece_bytes)]
    *complete, last = (line + b"\n" for line in whole.split(b"\n"))
    if last != b"\n":  # what stands behind the last end is a line only when it holds something
        complete.append(last)
    if not complete:
        assert list(split_batch(pieces, limit_bytes)) == []
        return
    header, rows = complete[0], complete[1:]
    if max(len(header), *(len(header) + len(row) for row in rows), 0) > limit_bytes:
        with pytest.raises(InputError, match="must fit"):
            list(split_batch(pieces, limit_bytes))
        return
    files = list(split_batch(pieces, limit_bytes))
    assert files == list(split_batch(whole, limit_bytes))
    assert all(file.startswith(header) and len(file) <= limit_bytes for file in files)
    assert b"".join(file.removeprefix(header) for file in files) == b"".join(rows)
    held = [_rows(file, header) for file in files]
    assert all(rows or len(files) == 1 for rows in held)
    for file, following in zip(files, held[1:], strict=False):
        assert len(file) + len(following[0]) > limit_bytes


def _rows(file: bytes, header: bytes) -> list[bytes]:
    return [line + b"\n" for line in file.removeprefix(header).split(b"\n")[:-1]]


def test_a_volume_of_300_thousand_tokens_is_one_file_and_one_more_is_two() -> None:
    """ACC-FILE: 30 MB are about 300 thousand tokens; here 100 bytes a line less the header."""
    row = b"x" * 99 + b"\n"
    fits = b"h" * 99 + b"\n" + row * 299_999
    assert [len(file) for file in split_batch(fits)] == [30_000_000]
    assert [len(file) for file in split_batch(fits + row)] == [30_000_000, 200]


def test_a_volume_is_read_as_the_files_are_taken() -> None:
    """ACC-SPLIT: a volume larger than memory passes through, from an open file too."""
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield f"{uuid.uuid4()}\n".encode()

    first = next(split_batch(endless(), 37 * 10))  # type: ignore[arg-type] # reason: a generator of bytes
    assert (first.count(b"\n"), taken) == (10, 11)
    assert list(split_batch(io.BytesIO(b"h\na\r\nb"), 5)) == [b"h\na\r\n", b"h\nb\n"]


def test_a_line_that_fits_into_no_file_is_named() -> None:
    with pytest.raises(InputError) as fault:
        list(split_batch(b"token\naaa\nbbbbbbbb\n", 12))
    assert str(fault.value) == (
        "line 3 of 9 bytes must fit, with the header, into a file of 12 bytes; "
        "raise limit_bytes or mend the line"
    )
