r"""The formats of access logs as data: one table, and what stands around the lines of a log.

A line of text is described by a template, in which `{name}` is a field and everything else stands
as it is written:

    {address} {identity} {user} [{time}] "{request}" {status} {size}

`_FIELDS` has the pattern of each field that is more than a word; a field in quotes may hold escapes
(`\"`), which stay as logged. `{tail}` is any number of further fields, each a word or quoted text;
they are called `extra1`, `extra2` …, and the first that reads like an API key is `key`. A log of
records (JSON, W3C, CSV, Parquet) is described by the names that its fields have.

To add a format, add an entry to `FORMATS`: detection, reading, `--format` and `--formats` follow.
No pattern matches a line feed, and each is linear in the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

Layout: TypeAlias = Literal["line", "json", "w3c", "csv", "parquet"]
"""How a format writes a record."""

QUOTED: Final = r'[^"\\\n]*(?:\\.[^"\\\n]*)*'
_IP: Final = r"\[?(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f.]*)[^\s,]*"
_NO_NUMBER: Final = r"(?!\d+ )"
"""Refuses a line that begins with a process number ahead of the address."""
_FIELDS: Final[Mapping[str, str]] = {
    "address": r"(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):)[^\s,\"]+(?:, ?[^\s,\"]+)*",
    "identity": rf"(?:-|(?!{_IP} )\S+)",  # an address there has a host or another one ahead
    "client": rf"{_IP}(?:, ?{_IP})*",
    "host_port": rf"(?!{_IP} )(?!\d+[ \-])[\w*][\w.*\-]*(?::\d+)?",
    "user": rf"(?:-|\"[^\"\n]*\"|(?!- )(?!{_IP} )[^\s\"\[]+(?: (?!-)[^\s\"\[]+){{0,5}})",
    "status": r"(?:\d{3}|-)",
    "size": r"(?:\d+|-)",
    "port": r"(?:\d{1,5}|-)",
    "ingress": r"(?: \[[^\]\n]*\] -)?",
    "code": r"(?: \"?(?P<status>\d{3})\"?(?=[ \r\n]))?",
    "blanks": r" +",
    "words": r"(?: [^\s\"\[]+)*",
    "epoch": r"\d{9,10}\.\d{3}",
    "milliseconds": r"\d+",
    "result": r"\w+/\d{3}",
    "type": r"(?:https?|h2|wss?|grpcs)",
    "level": r"(?:[A-Z]+: +)?",
    "pairs": r"[^\n]* (?:remote_)?ip=",
    "rest": r"(?: [^\n]*)?",
    "tail": rf"(?: [^\"\n]*(?:\"{QUOTED}\"[^\"\n]*)*)?",
    "captures": r"(?: \{[^}\n]*\}){0,2}",
    "gin_time": r"\d{4}/\d\d/\d\d - \d\d:\d\d:\d\d",
    "rails_time": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}",
    "login": r"[^)\n]*",
}
_ALIASES: Final = {
    "client": "address",
    **dict.fromkeys(("epoch", "gin_time", "rails_time"), "time"),
}
_SILENT: Final = frozenset(
    {"blanks", "words", "ingress", "code", "login", "level", "pairs", "rest"}
)
_PLACE: Final = re.compile(
    r"""(?P<open>["\[])\{(?P<inside>\w+)\}(?P<close>["\]])|\{(?P<bare>\w+)\}"""
)


@dataclass(frozen=True)
class LogFormat:
    """A format of logs.

    template: of a line; else empty. fields: target → the names that its field may have, the first
    that a log has; of a line the names of targets serve. is_loose: names are compared without case,
    `_`, `-`, `.` and blanks. guard: a look-ahead that a line must pass. needs: fields that a log of
    records must have.
    """

    name: str
    title: str
    layout: Layout = "line"
    template: str = ""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_loose: bool = False
    guard: str = ""
    needs: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> list[tuple[str, str]]:
        """The template as (field, pattern up to its end and that of what stands before it)."""
        parts, place = [], 0
        for match in _PLACE.finditer(self.template):
            opened, closed = re.escape(match["open"] or ""), re.escape(match["close"] or "")
            before = re.escape(self.template[place : match.start()]) + opened
            name = match["inside"] or match["bare"]
            pattern = {'"': QUOTED, "[": r"[^\]\n]*"}.get(match["open"]) or _FIELDS.get(
                name, r"\S+"
            )
            called = _ALIASES.get(name, name)
            group = pattern if name in _SILENT else f"(?P<{called}>{pattern})"
            parts.append(("status" if name == "code" else called, before + group + closed))
            place = match.end()
        parts[0] = (parts[0][0], self.guard + parts[0][1])
        parts[-1] = (parts[-1][0], parts[-1][1] + re.escape(self.template[place:]))
        return parts

    @cached_property
    def line(self) -> re.Pattern[str]:
        """What matches a whole line without its end."""
        return re.compile("".join(part for _, part in self.parts) + r"[ \t\r]*")


_COMMON: Final = '{address} {identity} {user} [{time}] "{request}" {status} {size}'
_COMBINED: Final = _COMMON + ' "{referer}" "{agent}"{tail}'
_ANY_FIELDS: Final = '{identity}{ingress} {user} [{time}]{words} "{request}"{code}{tail}'
_ENVOY: Final = (
    '{received} {sent} {duration} {upstream_time} "{address}" "{agent}" "{id}" "{host}"'
    ' "{upstream}"{tail}'
)

FORWARDED: Final = (
    *("xforwardedfor", "httpxforwardedfor", "cs(xforwardedfor)", "forwardedfor", "xrealip"),
    *("httpxrealip", "trueclientip", "cfconnectingip", "xff", "httpforwarded", "forwarded"),
)
"""How the names of fields with the addresses of clients behind proxies end."""
KEY_HEADERS: Final = ("svcapikey", "xapikey")
"""How the names of fields with the header of the API key end."""
REWRITTEN: Final = "uri"
"""What a path is called that nginx may have rewritten: any other name has what was requested."""
_LOOSE: Final[Mapping[str, tuple[str, ...]]] = {
    "time": (
        *(
            "tns",
            "requestcreationtime",
            "time",
            "timestamp",
            "@timestamp",
            "datetime",
            "ts",
            "date",
            "eventtime",
            "at",
        ),
        *("msec", "requesttimeepoch", "timelocal", "timeiso8601", "requesttime", "starttime"),
        *("createdat", "startedat", "arrival", "@t", "t", "wrappertime"),
    ),
    "address": (
        *("clientip", "clientaddress", "clientaddr", "cip", "ip", "address", "remoteaddr"),
        *("remoteip", "sourceip", "srcip", "remotehost", "remoteaddress", "clienthost", "client"),
        *("requestclientip", "requestremoteip", "requestremoteaddr", "requestip", "reqip"),
        *("requestremoteaddress", "remote", "ipaddress", "sourceipaddress", "httprequestremoteip"),
        *FORWARDED,
    ),
    "key": ("key", "apikey", *KEY_HEADERS),
    "request": ("request", "requestline"),
    "method": (
        *("method", "httpmethod", "requestmethod", "verb", "csmethod", "requestverb", "reqmethod"),
        *("httprequestmethod", "httprequestrequestmethod"),
    ),
    "path": (
        *("requesturi", "path", "url", "requestpath", "uripath", "csuristem", "requesturl"),
        *(
            "requrl",
            "urloriginal",
            "urlpath",
            "resourcepath",
            "httppath",
            "httpuri",
            "httprequestrequesturl",
        ),
        REWRITTEN,
    ),
    "status": (
        *("status", "statuscode", "httpstatus", "responsestatus", "scstatus"),
        *("httprequeststatus", "httpresponsestatuscode"),
    ),
}
"""What fields are commonly called."""

_W3C: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("date", "time", "datetime", "timestamp"),
    "address": ("c-ip",),
    "key": ("cs(SVC-API-KEY)", "cs(X-Api-Key)"),
    "method": ("cs-method",),
    "path": ("cs-uri-stem", "cs-uri", "cs-uri-path"),
    "status": ("sc-status",),
}

_OTEL: Final = ("attributes", "Attributes")
_OTEL_CLIENT: Final = ("client.address", "http.client_ip")
_OTEL_METHOD: Final = ("http.request.method", "http.method")
_OTEL_PATH: Final = ("url.path", "url.full", "http.target", "http.url")
_OTEL_STATUS: Final = ("http.response.status_code", "http.status_code")


def _json(name: str, title: str, **fields: tuple[str, ...]) -> LogFormat:
    """Return a format of JSON records. fields: target → the names that its field may have."""
    return LogFormat(name, title, "json", fields=fields)


FORMATS: Final[Mapping[str, LogFormat]] = {
    form.name: form
    for form in (
        LogFormat(
            "traefik-clf",
            "Traefik, common log format",
            template=_COMBINED.removesuffix("{tail}")
            + ' {number} "{router}" "{server}" {duration_ms}ms',
            guard=_NO_NUMBER,
        ),
        LogFormat("common", "the common log format", template=_COMMON, guard=_NO_NUMBER),
        LogFormat(
            "combined",
            "the combined log format of Apache, nginx, Gunicorn, Varnish, lighttpd and morgan",
            template=_COMBINED,
            guard=_NO_NUMBER,
        ),
        LogFormat(
            "vhost_combined",
            "Apache vhost_combined, or nginx with $host first",
            template="{host_port} " + _COMBINED,
        ),
        LogFormat(
            "alb",
            "AWS Application Load Balancer",
            template=(
                "{type} {end_time} {elb} {address}:{port} {target} {request_s} {target_s}"
                ' {response_s} {status} {target_status} {received} {sent} "{request}" "{agent}"'
                ' {cipher} {protocol} {group} "{trace}" "{domain}" "{certificate}" {priority}'
                " {time}{tail}"
            ),
        ),
        LogFormat(
            "elb",
            "AWS Classic Load Balancer",
            template=(
                "{time} {elb} {address}:{port} {backend} {request_s} {backend_s} {response_s}"
                ' {status} {backend_status} {received} {sent} "{request}"{tail}'
            ),
        ),
        LogFormat(
            "s3",
            "AWS S3 server access log",
            template=(
                "{owner} {bucket} [{time}] {address} {requester} {id} {operation} {object}"
                ' "{request}" {status}{tail}'
            ),
        ),
        LogFormat(
            "haproxy",
            "HAProxy, HTTP",
            template=(
                "{address}:{port} [{time}] {frontend} {server} {timers} {status} {size}"
                " {request_cookie} {response_cookie} {state} {connections} {queues}{captures}"
                ' "{request}"{tail}'
            ),
        ),
        LogFormat(
            "envoy",
            "Envoy, default format",
            template='[{time}] "{request}" {status} {flags} ' + _ENVOY,
        ),
        LogFormat(
            "ambassador",
            "Ambassador",
            template='ACCESS [{time}] "{request}" {status} {flags} ' + _ENVOY,
        ),
        LogFormat(
            "istio",
            "Istio, default format of Envoy",
            template='[{time}] "{request}" {status} {flags} {details} {termination} "{failure}" '
            + _ENVOY,
        ),
        LogFormat(
            "squid",
            "Squid, native format",
            template=(
                "{epoch}{blanks}{milliseconds} {address} {result} {size} {method} {path} {user}"
                " {hierarchy} {media_type}"
            ),
        ),
        LogFormat(
            "uvicorn",
            "uvicorn; its time is the wrapper's (Docker, Kubernetes, syslog)",
            template='{level}{address}:{port} - "{request}" {status}{tail}',
        ),
        LogFormat(
            "uwsgi",
            "uWSGI",
            template=(
                "[pid: {pid}|app: {app}|req: {number}] {address} ({login}) {{vars} vars in {bytes}"
                " bytes} [{time}] {method} {path} => generated {size} bytes in {duration} msecs"
                " ({protocol} {status}){tail}"
            ),
        ),
        LogFormat(
            "gin",
            "Gin",
            template=(
                "[GIN] {gin_time} |{blanks}{status} |{blanks}{latency} |{blanks}{address} |"
                '{blanks}{method}{blanks}"{path}"{tail}'
            ),
        ),
        LogFormat(
            "rails",
            "Rails, of each request the line that begins with Started",
            template='Started {method} "{path}" for {address} at {rails_time}',
        ),
        LogFormat(
            "lograge",
            "lograge with `ip` or `remote_ip`; its time is the wrapper's",
            template=(
                "method={method} path={path} format={format} controller={controller}{blanks}"
                "action={action}{blanks}status={status}{pairs}{address}{rest}"
            ),
        ),
        LogFormat(
            "heroku",
            "Heroku's router; its time is that of syslog around it",
            template=(
                'at={state} method={method} path="{path}" host={host} request_id={id}'
                ' fwd="{address}"{tail}'
            ),
        ),
        LogFormat(
            "aiohttp",
            "aiohttp",
            template='{client} [{time}] "{request}" {status} {size}{tail}',
        ),
        LogFormat(
            "api-gateway",
            "AWS API Gateway, CLF",
            template='{address} {identity} {user} [{time}]"{request}" {status} {size}{tail}',
        ),
        LogFormat(
            "ssl-request",
            "Apache ssl_request_log",
            template='[{time}] {client} {protocol} {cipher} "{request}" {size}',
        ),
        LogFormat(
            "nginx",
            "nginx or Apache with other fields after the request (upstream, request time …)",
            template="{client} " + _ANY_FIELDS,
            guard=_NO_NUMBER,
        ),
        LogFormat(
            "nginx-vhost",
            "the same with the host ahead of the address",
            template="{host_port} {client} " + _ANY_FIELDS,
        ),
        LogFormat(
            "jetty",
            "Jetty up to version 9",
            template=(
                '{address} {identity}{blanks}{user}{blanks}[{time}] "{request}" {status} {size}'
                "{tail}"
            ),
        ),
        LogFormat(
            "tollgate",
            "the engine's own server (serve --access-log-format json)",
            "json",
            fields={
                **{name: (name,) for name in ("time", "key", "method", "path", "status")},
                "address": ("ip",),
                **{name: (name,) for name in ("tenant", "tenant_kind", "application")},
                **{name: (name,) for name in ("application_kind", "legacy")},
            },
            needs=("ip", "request_id", "application_kind", "outcome"),
        ),
        _json(
            "caddy",
            "Caddy",
            time=("ts",),
            address=("request.client_ip", "request.remote_ip", "request.remote_addr"),
            method=("request.method",),
            path=("request.uri",),
            status=("status",),
        ),
        _json(
            "traefik",
            "Traefik, JSON",
            time=("StartUTC", "StartLocal", "time"),
            address=("ClientHost", "ClientAddr"),
            method=("RequestMethod",),
            path=("RequestPath",),
            status=("DownstreamStatus",),
        ),
        _json(
            "envoy-json",
            "Envoy, JSON (Istio, Contour, Envoy Gateway)",
            time=("start_time", "@timestamp"),
            address=("x_forwarded_for", "x-forwarded-for", "downstream_remote_address"),
            method=("method",),
            path=("x_envoy_original_path", "x-envoy-origin-path", "path"),
            status=("response_code",),
        ),
        _json(
            "ecs",
            "Elastic Common Schema, nested or dotted",
            time=("@timestamp",),
            address=("client.ip", "source.ip", "client.address", "source.address"),
            method=("http.request.method",),
            path=("url.original", "url.path", "url.full"),
            status=("http.response.status_code",),
        ),
        _json(
            "gcp",
            "Google Cloud load balancer",
            time=("timestamp",),
            address=("httpRequest.remoteIp",),
            method=("httpRequest.requestMethod",),
            path=("httpRequest.requestUrl",),
            status=("httpRequest.status",),
        ),
        _json(
            "aws-waf",
            "AWS WAF",
            time=("timestamp",),
            address=("httpRequest.clientIp",),
            method=("httpRequest.httpMethod",),
            path=("httpRequest.uri",),
        ),
        _json(
            "azure-gateway",
            "Azure Application Gateway and Front Door",
            time=("timeStamp", "time"),
            address=("properties.clientIP", "properties.clientIp"),
            method=("properties.httpMethod",),
            path=("properties.requestUri",),
            status=("properties.httpStatus", "properties.httpStatusCode"),
        ),
        _json(
            "cloudflare",
            "Cloudflare Logpush",
            time=("EdgeStartTimestamp",),
            address=("ClientIP",),
            method=("ClientRequestMethod",),
            path=("ClientRequestURI", "ClientRequestPath"),
            status=("EdgeResponseStatus",),
        ),
        _json(
            "akamai",
            "Akamai DataStream 2, JSON",
            time=("reqTimeSec",),
            address=("cliIP",),
            method=("reqMethod",),
            path=("reqPath",),
            status=("statusCode",),
        ),
        _json(
            "opentelemetry",
            "OpenTelemetry, a record a line",
            time=("timestamp", "Timestamp", "time", "timeUnixNano"),
            address=tuple(f"{part}.{name}" for part in _OTEL for name in _OTEL_CLIENT),
            method=tuple(f"{part}.{name}" for part in _OTEL for name in _OTEL_METHOD),
            path=tuple(f"{part}.{name}" for part in _OTEL for name in _OTEL_PATH),
            status=tuple(f"{part}.{name}" for part in _OTEL for name in _OTEL_STATUS),
        ),
        _json(
            "logstash",
            "Logstash, parsed by its pattern for Apache",
            time=("timestamp", "@timestamp"),
            address=("clientip",),
            method=("verb",),
            path=("request",),
            status=("response",),
        ),
        _json(
            "kong",
            "Kong",
            time=("started_at",),
            address=("client_ip",),
            method=("request.method",),
            path=("request.uri", "request.url"),
            status=("response.status",),
        ),
        _json(
            "pino",
            "pino, and bunyan",
            time=("time",),
            address=("req.ip", "req.remoteAddress"),
            method=("req.method",),
            path=("req.url",),
            status=("res.statusCode",),
        ),
        _json(
            "vercel",
            "Vercel, log drains",
            time=("proxy.timestamp", "timestamp"),
            address=("proxy.clientIp",),
            method=("proxy.method",),
            path=("proxy.path",),
            status=("proxy.statusCode",),
        ),
        LogFormat("cloudfront", "AWS CloudFront", "w3c", fields=_W3C),
        LogFormat("iis", "Microsoft IIS", "w3c", fields=_W3C),
        LogFormat("w3c", "W3C extended, by its #Fields", "w3c", fields=_W3C),
        LogFormat(
            "jsonl", "JSON, an object a line or an array", "json", fields=_LOOSE, is_loose=True
        ),
        LogFormat("csv", "CSV or TSV, by its first row", "csv", fields=_LOOSE, is_loose=True),
        LogFormat("parquet", "Parquet", "parquet", fields=_LOOSE, is_loose=True),
    )
}
"""The formats by name; of several that fit, the first is meant."""


def plain_name(name: str) -> str:
    """Return a field's name without case, `_`, `-`, `.` and blanks."""
    return re.sub(r"[_.\- ]", "", name).lower()


# --- what stands around a line -------------------------------------------------------------------

_DAY: Final = r"\d{4}-\d\d-\d\d"
_ISO: Final = _DAY + r"[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?"
_SLASHES: Final = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?"
_PRIORITY: Final = r"(?:(?:\d+ )?<\d{1,3}>)?"
"""Ahead of it, over TCP, the length of the line (RFC 6587)."""
_TAG: Final = r"[^\s:\[]+(?:\[[\w.]+\])?: ?(?:@cee: ?)?"
_DATA: Final = r"(?:(?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: |$))?\ufeff?"
_OLD: Final = r"[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d+)?"


@dataclass(frozen=True)
class Wrapper:
    """What a log's carrier puts around each line.

    pattern: of a line, with the groups `text`, and perhaps `time`, `stream` and `part` (P where the
    line goes on in the next one of its stream). text: else the name of the JSON field that holds
    the line. time, stream: of the JSON fields with its time and its stream. whole: what a line that
    goes on lacks at its end.
    """

    name: str
    title: str
    pattern: re.Pattern[str] | None = None
    text: str = ""
    time: tuple[str, ...] = ()
    stream: str = ""
    whole: str = ""


WRAPPERS: Final = (
    *(
        Wrapper(name, title, re.compile(pattern))
        for name, title, pattern in (
            (
                "cri",
                "Kubernetes CRI",
                rf"(?P<time>{_ISO}) (?P<stream>stdout|stderr) (?P<part>[FP])(?::\S*)? (?P<text>.*)",
            ),
            (
                "syslog",
                "syslog (RFC 3164, rsyslog)",
                rf"{_PRIORITY}(?:(?P<time>{_ISO})|{_OLD}) (?:\S*[^\s:] )?{_TAG}(?P<text>.*)",
            ),
            (
                "syslog",
                "syslog (RFC 5424)",
                rf"{_PRIORITY}1 (?P<time>{_ISO}) (?:\S+ ){{4}}{_DATA}(?P<text>.*)",
            ),
            (
                "papertrail",
                "Papertrail's archives",
                rf"\d+\t(?P<time>{_ISO})\t{_ISO}\t(?:[^\t]*\t){{6}}(?P<text>.*)",
            ),
            (
                "zap",
                "zap's console (Caddy without JSON)",
                rf"(?P<time>{_ISO}|{_SLASHES})\t[A-Za-z]+\t[^\t]*\t(?:[^\t]*\t)?(?P<text>\{{.*)",
            ),
            ("fluentd", "Fluentd's files", rf"(?P<time>{_ISO})\t[^\t]*\t(?P<text>\{{.*)"),
            (
                "logcli",
                "logcli",
                rf'(?P<time>{_ISO}) +\{{(?:[^"}}]|"(?:[^"\\]|\\.)*")*\}} +(?P<text>.*)',
            ),
            (
                "ruby",
                "the logger of Ruby and Rails",
                rf"[A-Z], \[(?P<time>{_ISO}) #\d+\] +[A-Z]+ -- [^:]*: (?:\[[^\]]*\] )*(?P<text>.*)",
            ),
            (
                "python",
                "the logger of Python",
                rf"(?:(?P<time>{_ISO}) - [\w.]+ - [A-Z]+ - |[A-Z]+:[\w.]+:)(?P<text>.*)",
            ),
            (
                "kubectl",
                "kubectl logs --prefix or --timestamps, docker logs -t",
                rf"(?=\[pod/|{_DAY}[T ])(?:\[pod/[^\]]*\] )?(?:(?P<time>{_ISO}) )?(?P<text>.*)",
            ),
            (
                "compose",
                "docker compose logs, docker service logs, pm2 logs",
                rf"[\w.\-@|]+ +\| (?:(?P<time>{_ISO}) )?(?P<text>.*)",
            ),
            (
                "gunicorn",
                "Gunicorn's and Hypercorn's logger",
                rf"\[{_ISO} [+-]\d{{4}}\] \[\d+\] \[[A-Z]+\] (?P<text>.*)",
            ),
            ("pid", "a process number", rf"\[?\d+\]? (?P<text>{_IP} .*)"),
        )
    ),
    Wrapper("docker", "Docker JSON", text="log", time=("time",), stream="stream", whole="\n"),
    Wrapper(
        "message",
        "JSON with the line in `message`",
        text="message",
        time=("@timestamp", "timestamp"),
    ),
    Wrapper("loki", "JSON of logcli", text="line", time=("timestamp",)),
    Wrapper("cloudwatch", "JSON of CloudWatch Insights", text="@message", time=("@timestamp",)),
    Wrapper("journald", "JSON of journald", text="MESSAGE", time=("__REALTIME_TIMESTAMP",)),
    Wrapper("gcp", "JSON with the line in `textPayload`", text="textPayload", time=("timestamp",)),
)
