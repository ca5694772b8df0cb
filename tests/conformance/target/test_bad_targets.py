"""Targets that are no deployment, or not today: one line, in bounded time, never a pass."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import conformance
from conformance.cli import main
from conformance.faults.trial import served
from conformance.target import Target, TargetKey
from engine import Profile
from tests.conformance.servers import Handler, answering, counting, dropping, hanging, serving

BAD_SEEDS = ("-1", "1.5", "1_0", "two", "\N{SUPERSCRIPT TWO}", "1" * 19)
TIMEOUT_S = 1
MOST_CONNECTIONS = 3


def _answer(
    body: bytes, kind: str = "application/json", more: str = "", status: str = "200 OK"
) -> Handler:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return answering(head.encode() + body)


async def _drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _speaks_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    await reader.read()


async def _never_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"[" * 1_000_000
    while True:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()


BOMB = gzip.compress(b"[" * 30_000_000)
BAD: dict[str, tuple[Handler, str]] = {
    "hanging": (hanging, "no answer within 1 s"),
    "dripping": (_drips, "no answer within 1 s"),
    "endless": (_never_ends, ""),
    "html": (_answer(b"<html>Welcome</html>", "text/html"), "text/html"),
    "gzip": (_answer(BOMB, more="Content-Encoding: gzip\r\n"), ""),
    "deep": (_answer(b"[" * 200_000), ""),
    "key": (_answer(b"{}", status="401 Unauthorized"), "401"),
    "address": (_answer(b"{}", status="404 Not Found"), "404"),
    "no HTTP": (answering(b"220 smtp.example ESMTP\r\n\r\n"), "no HTTP"),
}


def _run(
    folder: Path, url: str, capsys: pytest.CaptureFixture[str], more: str = ""
) -> tuple[int, str]:
    file = folder / "target.toml"
    file.write_text(
        f'base_url = "{url}"\ntimeout = "{TIMEOUT_S}s"\n{more}\n'
        '[[keys]]\nrole = "private_prod"\nvalue = "canary-of-a-key"\n',
        "utf-8",
    )
    code = main(["run", str(file), "--out", str(folder / "out"), "--no-limits"])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("conformance: ")
    assert "canary" not in printed.err
    return code, printed.err


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_deployment_is_one_line_and_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    handler, says = BAD[name]
    connections: list[int] = []
    with serving(counting(handler, connections)) as port:
        code, line = _run(tmp_path, f"http://127.0.0.1:{port}", capsys)
    assert code == 3
    assert len(connections) <= MOST_CONNECTIONS, "each may wait for a whole timeout"
    assert says in line


def test_a_wrong_address_is_told_whichever_keys_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """404 to a management key is no sign that the key is known; a slow destination is not tried."""
    more = "".join(
        f'[[keys]]\nrole = "{role}"\nvalue = "canary-{role}"\n{field}\n'
        for role, field in (("management", ""), ("slow_destination", 'path = "/proxy/delay/26"'))
    )
    with serving(BAD["address"][0]) as port:
        code, line = _run(tmp_path, f"http://127.0.0.1:{port}", capsys, more)
    assert (code, "private_prod.1 got 404 to POST /tokenize" in line) == (3, True)


def test_a_dead_target_and_one_without_tls_end_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(hanging) as port:
        pass
    code, line = _run(tmp_path, f"http://127.0.0.1:{port}", capsys)
    assert (code, "connection refused" in line) == (3, True)
    with serving(_speaks_plainly) as port:
        code, line = _run(tmp_path, f"https://127.0.0.1:{port}", capsys)
    assert (code, "TLS" in line) == (3, True)


def test_a_dead_target_is_told_before_anything_large_is_loaded(tmp_path: Path) -> None:
    """On a busy machine imports take most of the time: servers, clients and arrays are not used."""
    file = tmp_path / "target.toml"
    key = 'keys = [{ role = "private_prod", value = "canary-of-a-key" }]'
    file.write_text(f'base_url = "http://127.0.0.1:9"\n{key}\n', "utf-8")
    program = (
        "import sys\nfrom conformance.cli import main\n"
        f"code = main(['run', {str(file)!r}, '--out', {str(tmp_path / 'out')!r}])\n"
        "large = {'httpx', 'jinja2', 'numpy', 'pandas', 'schemathesis', 'starlette', 'uvicorn'}\n"
        "print(code, sorted(large & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, check=False, stdout=subprocess.PIPE).stdout == b"3 []\n"


def test_a_bad_file_is_one_line_and_nothing_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[bytes] = []
    with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", seen)) as port:
        more = "budget = { requests = 0 }"
        code, line = _run(tmp_path, f"http://127.0.0.1:{port}", capsys, more)
        assert code == 2
        assert "target.toml:3:23: budget.requests = 0 must be at least 1" in line
        for words, says in (
            (["--format", "jnuit"], "--format = 'jnuit' must be some of"),
            (["--only-new"], "--only-new needs --baseline"),
            (["--baseline", str(tmp_path / "none")], "give the folder of a run"),
            (["--select", "TOK-NONE"], "TOK-NONE"),
            *((["--seed", seed], f"{seed!r} must be a whole number") for seed in BAD_SEEDS),
        ):
            (tmp_path / "target.toml").write_text(f'base_url = "http://127.0.0.1:{port}"\n')
            try:
                code = main(["run", str(tmp_path / "target.toml"), *words])
            except SystemExit as ended:  # by the parser of the words
                code = int(ended.code or 0)
            assert code == 2
            assert says in capsys.readouterr().err
    assert seen == []


# --- what Python and a report say of them -------------------------------------------------------

KEYS = (
    TargetKey(role="private_prod", value="canary-1"),
    TargetKey(role="public", value="canary-2"),
)


def _target(port: int) -> Target:
    return Target(base_url=f"http://127.0.0.1:{port}", timeout_ns=300_000_000, keys=KEYS)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (hanging, "gives no answer: no answer within 0.3 s"),
        (dropping([]), "gives no answer: the connection was"),
        (BAD["no HTTP"][0], "gives no answer: the answer is no HTTP"),
    ],
    ids=["hangs", "drops", "no HTTP"],
)
def test_who_gives_no_answer_is_unreachable(handler: Handler, says: str) -> None:
    connections: list[int] = []
    with (
        serving(counting(handler, connections)) as port,
        pytest.raises(conformance.Unreachable, match=says),
    ):
        conformance.run(_target(port), select=["TOK-LEAF"], seed=1)
    assert len(connections) <= MOST_CONNECTIONS


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (
            _answer(b"{}"),
            "without an identifier, so it is not from a tokenization service",
        ),
        (_answer(b"[]"), "JSON that is not an object"),
        (BAD["html"][0], "an answer that is not JSON (text/html)"),
        (BAD["key"][0], "private_prod.1 is not a key of this deployment"),
        (_answer(b"", status="403 Forbidden"), "private_prod.1 lacks the permission"),
        (BAD["address"][0], "404"),
        (_answer(b"", status="500 Oops"), "private_prod.1 got 500"),
    ],
    ids=["200", "array", "html", "wrong key", "no permission", "404", "500"],
)
def test_who_accepts_nothing_or_everything_gets_no_verdict(handler: Handler, says: str) -> None:
    with serving(handler) as port:
        report = conformance.run(_target(port), select=["TOK-LEAF", "TOK-ATOMIC"], seed=1)
    _judges_nothing(report, says)


@pytest.mark.parametrize(
    ("role", "says"),
    [
        (None, "is not a key of this deployment"),
        ("private_no_permission", "lacks the permission"),
    ],
)
def test_a_key_that_may_nothing_at_the_real_server_is_named(role: str | None, says: str) -> None:
    with served() as target:
        own = [
            dataclasses.replace(key, role="private_prod") for key in target.keys if key.role == role
        ]
        report = conformance.run(
            dataclasses.replace(target, keys=tuple(own[:1]) or KEYS),
            select=["TOK-LEAF", "TOK-ATOMIC"],
            seed=1,
        )
    _judges_nothing(report, says)


def _judges_nothing(report: conformance.Report, says: str) -> None:
    assert report.exit_code == 3
    assert says in report.verdict_line
    assert report.verdict_line.startswith("nothing could be judged: ")
    assert {result.verdict for result in report.results} <= {
        conformance.Verdict.INCONCLUSIVE,
        conformance.Verdict.SKIPPED,
    }


@pytest.mark.slow
def test_who_refuses_everything_gets_no_verdict() -> None:
    with serving(_answer(b"", status="429 Too Many Requests")) as port:
        report = conformance.run(_target(port), select=["TOK-LEAF"], seed=1)
    assert report.exit_code == 3
    assert "is refused (429) all the time" in report.verdict_line


# --- targets to begin with ----------------------------------------------------------------------


def _open_transports() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "conformance"}


def test_init_asks_a_deployment_and_leaves_the_rest_as_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign service: 201, an own container field, nothing but /tokenize, a bearer token."""
    asked: list[bytes] = []

    async def foreign(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = [
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ]
            body = await reader.readexactly(size[0]) if size else b""
            asked.append(head)
            record = {"id": "1", "vault": "cards" if b"card" in body else ["main"]}
            if not head.startswith(b"POST /tokenize "):
                status, answer = "404 Not Found", b"{}"
            elif b"canary-of-a-key" not in head:
                status, answer = "401 Unauthorized", b'{"say": "Authorization: Bearer missing"}'
            elif b'"vault":[' in body.replace(b" ", b""):
                status, answer = "422 Unprocessable Content", b'{"say": "a vault is a string"}'
            else:
                status, answer = "201 Created", json.dumps(record).encode()
            length = f"Content-Length: {len(answer)}"
            writer.write(f"HTTP/1.1 {status}\r\n{length}\r\n\r\n".encode() + answer)

    before = _open_transports()
    monkeypatch.setenv("KEY_PRIVATE_PROD_1", "canary-of-a-key")
    file = tmp_path / "target.toml"
    with serving(foreign) as port:
        assert main(["init", str(file), "--url", f"http://127.0.0.1:{port}/"]) == 0
    text = file.read_text("utf-8")
    found = capsys.readouterr().out
    assert "canary" not in text + found
    assert "POST /tokenize with KEY_PRIVATE_PROD_1: 201" in found
    assert f"wrote {file}, and its profile and schema beside it; fill it in, then:" in found
    for line in (
        f'base_url = "http://127.0.0.1:{port}"',
        'key_header = "Authorization"  # the answer without a key names it',
        'default_containers = { token = "main", card = "cards" }  # as its records say',
        'containers = "vault"  # as its records say',
        "# [requests.search]  # POST /tokens/search: 404",
        'profile = "profile.toml"  # what is known of its choices; a run finds more',
        "# Requests may name a container as a string: that was accepted.",
    ):
        assert line in text.splitlines()
    assert len(asked) <= 28, "as the documentation says"
    profile = Profile.from_toml(tmp_path / "profile.toml")
    assert profile == Profile().replace(tokens={"container_form": "string"})
    assert main(["check", str(file)]) == 0
    told = capsys.readouterr().out
    assert "private_reader; add [[keys]] role" in told
    assert "nothing was sent" in told
    assert main(["init", str(tmp_path / "other.toml"), "--url", "http://127.0.0.1:9"]) == 3
    assert main(["init", str(tmp_path / "other.toml"), "--url", "vault.example"]) == 2
    assert not (tmp_path / "other.toml").exists()
    assert main(["run", str(file), "--plan"]) == 0
    assert "\nplan: " in capsys.readouterr().out
    assert _open_transports() <= before, "each command closes its own"


def test_check_sends_nothing_and_says_how_to_be_told_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "target.toml"
    file.write_text(
        'base_url = "http://127.0.0.1:9"\nsources = ["127.0.0.2", "127.0.0.3"]\n'
        'keys = [{ role = "private_prod", value = "canary-of-a-key" }]\n'
        '[requests.search]\nmethod = "POST"\npath = "/find"\nlimit = "20/10s"\n',
        "utf-8",
    )
    assert main(["check", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("http://127.0.0.1:9: ")
    assert any(line.startswith("judged: TOK-OBJECT") for line in lines)
    assert any("search has a limit of its own here, 20/10s" in line for line in lines)
    assert any(line.startswith("warning: the probe of LIM-IP") for line in lines)
    assert any(line.startswith("- management: ") for line in lines)


def test_check_asks_for_no_key_and_names_those_that_a_run_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_THAT_IS_SET", "canary-of-a-key")
    file = tmp_path / "target.toml"
    file.write_text(
        'base_url = "http://127.0.0.1:9"\n'
        '[[keys]]\nrole = "private_prod"\nvalue = "${KEY_THAT_IS_SET}"\n'
        '[[keys]]\nrole = "public"\nvalue = "${KEY_THAT_IS_NOT}"\n',
        "utf-8",
    )
    assert main(["check", str(file)]) == 0
    told = capsys.readouterr().out
    assert "- public: public application" not in told, "the role has a key"
    last = told.splitlines()[-1]
    assert last == "a run needs these environment variables, which are not set: KEY_THAT_IS_NOT"
    assert main(["run", str(file)]) == 2
    assert "needs the environment variable KEY_THAT_IS_NOT" in capsys.readouterr().err
    file.write_text(file.read_text("utf-8").replace("_SET}", "_NOT}"), "utf-8")
    assert main(["check", str(file)]) == 2, "one key twice"
    assert "must differ from keys[0]" in capsys.readouterr().err
