"""The logs that servers write by default, a line of each: read as they are meant, or refused.

Each form is that of the tool's documentation. All of them are one request, `GET /tokens` of
203.0.113.9 on 9 June 2025 at 12:10 UTC, and whatever the form has beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from engine.errors import InputError
from simulator.logs import FORMATS, stream_log
from simulator.logs.formats import WRAPPERS

AT_S: Final = 1_749_471_000
IP: Final = "203.0.113.9"
STAMP: Final = "09/Jun/2025:12:10:00 +0000"
COMBINED: Final = f'{IP} - - [{STAMP}] "GET /tokens HTTP/1.1" 200 612 "-" "curl/8"'
CLF: Final = COMBINED.removesuffix(' "-" "curl/8"')
CADDY: Final = {
    "level": "info",
    "ts": AT_S,
    "logger": "http.log.access",
    "msg": "handled request",
    "request": {
        "remote_ip": "198.51.100.1",
        "client_ip": IP,
        "method": "GET",
        "uri": "/tokens",
        "headers": {"User-Agent": ["curl/8"]},
    },
    "status": 200,
}
ENVOY: Final = f'0 48 2 1 "{IP}" "curl/8" "cc21d9b0" "api.example.test" "10.0.0.3:80"'

REQUEST: Final = '"GET /tokens HTTP/1.1"'
HEROKU: Final = (
    f'at=info method=GET path="/tokens" host=a.example request_id=29005dee fwd="{IP}" dyno=web.1'
    " connect=1ms service=9ms status=200 bytes=612 protocol=https"
)

LINES: Final[dict[str, tuple[str, str]]] = {
    # name of the form: (the format that it is read as, the log)
    "common": ("common", CLF),
    "combined of nginx, Apache, Gunicorn, morgan": ("combined", COMBINED),
    "mapped IPv4, as Node writes it": ("combined", COMBINED.replace(IP, f"::ffff:{IP}")),
    "nginx main, with X-Forwarded-For": ("combined", f'{COMBINED} "198.51.100.7"'),
    "nginx with times": ("combined", f'{COMBINED} rt=0.003 uct="0.000" urt="0.003"'),
    "nginx with times before the referrer": (
        "nginx",
        f'{CLF} 0.003 10.0.0.1:8080 "-" "curl/8"',
    ),
    "nginx with a host after the time": ("nginx", COMBINED.replace('] "', '] a.example "')),
    "nginx with quoted numbers": ("nginx", COMBINED.replace("200 612", '"200" "612"')),
    "ingress of Kubernetes": (
        "combined",
        f"{COMBINED} 35 0.003 [default-web-80] [] 10.0.0.5:8080 612 0.003 200 3fa",
    ),
    "ingress of Kubernetes, before 0.22": (
        "nginx",
        COMBINED.replace("- - [", f"- [{IP}] - - [", 1) + " 35 0.003 [default-web-80]",
    ),
    "nginx with the host first": ("vhost_combined", f"a.example {COMBINED}"),
    "nginx with the host first, common": ("nginx-vhost", f"a.example:443 {CLF}"),
    "Apache vhost_combined": ("vhost_combined", f"shop.example.test:443 {COMBINED}"),
    "Apache with %D": ("combined", f"{COMBINED} 1234"),
    "Apache with a host name and a user": (
        "combined",
        COMBINED.replace("- -", "- ada lovelace"),
    ),
    "Apache with milliseconds": ("combined", COMBINED.replace(":00 +", ":00.000 +")),
    "lighttpd": ("combined", COMBINED.replace("- -", "www.example.test -")),
    "Varnish": ("combined", COMBINED.replace("GET /", "GET http://www.example.test/")),
    "Traefik, CLF": ("traefik-clf", f'{COMBINED} 6 "web@docker" "http://10.0.0.2:80" 3ms'),
    "Application Load Balancer": (
        "alb",
        (
            f"https 2025-06-09T12:10:00.186641Z app/my-lb/50dc {IP}:2817 10.0.0.1:80 0.086 0.048"
            ' 0.037 200 200 0 57 "GET https://www.example.com:443/tokens?a=1 HTTP/1.1" "curl/7"'
            ' ECDHE TLSv1.2 arn:aws:x "Root=1-58" "www.example.com" "arn:aws:acm" 1'
            ' 2025-06-09T12:10:00.000000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-"'
            ' "-" TID_1'
        ),
    ),
    "Classic Load Balancer": (
        "elb",
        (
            f"2025-06-09T12:10:00.000000Z my-lb {IP}:2817 10.0.0.1:80 0.07 0.10 0.05 200 200 0 29"
            ' "GET http://example.com:80/tokens HTTP/1.1" "curl/7.38.0" - -'
        ),
    ),
    "S3": (
        "s3",
        (
            f"79a59df900 DOC-BUCKET [{STAMP}] {IP} 79a59df 3E57427 REST.GET.VERSIONING -"
            ' "GET /tokens?versioning HTTP/1.1" 200 - 113 - 7 - "-" "S3Console/0.4" - s9= SigV4'
        ),
    ),
    "CloudFront": (
        "cloudfront",
        (
            "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host)"
            " cs-uri-stem sc-status cs(User-Agent)\n"
            f"2025-06-09\t12:10:00\tLAX1\t392\t{IP}\tGET\td1.example\t/tokens\t200\tMozilla/5.0%20X"
        ),
    ),
    "IIS": (
        "iis",
        (
            "#Software: Microsoft Internet Information Services 10.0\n"
            "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port c-ip sc-status\n"
            f"2025-06-09 12:10:00 10.0.0.5 GET /tokens - 443 {IP} 200"
        ),
    ),
    "W3C with quoted fields": (
        "w3c",
        (
            "#Version: 1.0\n#Fields: date time c-ip cs-method cs-uri cs(User-Agent)\n"
            f'2025-06-09 12:10:00 {IP} GET http://h.example/tokens "Mozilla 5 (X)"'
        ),
    ),
    "HAProxy behind syslog": (
        "haproxy in syslog",
        (
            f"Jun  9 12:10:00 lb haproxy[14389]: {IP}:33317 [09/Jun/2025:12:10:00.000] http-in"
            " static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {}"
            ' "GET /tokens HTTP/1.1"'
        ),
    ),
    "Envoy": ("envoy", f'[2025-06-09T12:10:00.000Z] "GET /tokens HTTP/2" 200 - {ENVOY}'),
    "Istio": (
        "istio",
        f'[2025-06-09T12:10:00.000Z] "GET /tokens HTTP/2" 200 - via_upstream - "-" {ENVOY} in',
    ),
    "Squid": (
        "squid",
        (
            f"{AT_S}.000    321 {IP} TCP_MISS/200 1234 GET http://example.com/tokens - "
            "HIER_DIRECT/10.0.0.1 text/html"
        ),
    ),
    "uvicorn in a Kubernetes log": (
        "uvicorn in cri",
        f'2025-06-09T12:10:00.000Z stdout F INFO:     {IP}:5432 - "GET /tokens HTTP/1.1" 200 OK',
    ),
    "uvicorn, whose port needs no brackets": (
        "uvicorn in cri",
        f'2025-06-09T12:10:00Z stdout F INFO:     ::ffff:{IP}:543 - "GET /tokens HTTP/1.1" 200 OK',
    ),
    "Docker": (
        "combined in docker",
        json.dumps({"log": f"{COMBINED}\n", "stream": "stdout", "time": "2025-06-09T12:10:07Z"}),
    ),
    "Caddy in Docker": (
        "caddy in docker",
        json.dumps({"log": json.dumps(CADDY) + "\n", "stream": "stderr", "time": "x"}),
    ),
    "Fluentd, which takes line ends off": (
        "combined in docker",
        json.dumps({"log": COMBINED, "stream": "stdout"}),
    ),
    "Filebeat": (
        "combined in message",
        json.dumps({"@timestamp": "2025-06-09T12:10:07Z", "message": COMBINED, "host": {}}),
    ),
    "Kubernetes CRI": ("combined in cri", f"2025-06-09T12:10:07.1Z stdout F {COMBINED}"),
    "Kubernetes CRI, a line in two": (
        "combined in cri",
        (
            f"2025-06-09T12:10:07Z stdout P {COMBINED[:50]}\n"
            f"2025-06-09T12:10:07Z stdout F {COMBINED[50:]}"
        ),
    ),
    "kubectl logs --timestamps": ("combined in kubectl", f"2025-06-09T12:10:07.1Z {COMBINED}"),
    "kubectl logs --prefix": ("combined in kubectl", f"[pod/web-1/nginx] {COMBINED}"),
    "docker compose logs": ("combined in compose", f"web_1  | {COMBINED}"),
    "syslog": ("combined in syslog", f"Jun  9 12:10:07 web1 nginx: {COMBINED}"),
    "syslog with a priority": ("combined in syslog", f"<190>Jun  9 12:10:07 w nginx: {COMBINED}"),
    "syslog, RFC 5424": (
        "combined in syslog",
        f"<13>1 2025-06-09T12:10:07.1Z web1 nginx 12 - - {COMBINED}",
    ),
    "rsyslog": ("combined in syslog", f"2025-06-09T12:10:07.1+00:00 web1 nginx[12]: {COMBINED}"),
    "Fastly behind syslog": (
        "common in syslog",
        f"<134>2025-06-09T12:10:07Z cache-fra1 log[4711]: {CLF}".replace("- -", '"-" "-"'),
    ),
    "syslog without a host, as HAProxy writes it": (
        "haproxy in syslog",
        (
            f"<134>Jun  9 12:10:00 haproxy[8]: {IP}:33317 [09/Jun/2025:12:10:00.000] in st/s1"
            ' 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /tokens HTTP/1.1"'
        ),
    ),
    "rsyslog with the mark of CEE": (
        "jsonl in syslog",
        "Jun  9 12:10:07 lb app[1]: @cee: "
        + json.dumps({"time": AT_S, "ip": IP, "method": "GET", "path": "/tokens"}),
    ),
    "HAProxy, CLF": (
        "combined in syslog",
        (
            f'Jun  9 12:10:00 lb haproxy[1]: {CLF} "" "" 33317 000 "http-in" "static" "srv1" 10 0'
            ' 30 69 109 ---- 1 1 1 1 0 0 0 "" "" '
        ),
    ),
    "Docker Swarm": ("combined in compose", f"web.1.k2x@node1    | {COMBINED}"),
    "pm2 logs": ("combined in compose", f"0|app  | {COMBINED}"),
    "syslog over TCP, with the length first": (
        "combined in syslog",
        f"412 <13>1 2025-06-09T12:10:07.1Z web1 nginx 12 - - \ufeff{COMBINED}",
    ),
    "journalctl -o short-precise": (
        "combined in syslog",
        f"Jun 09 12:10:07.123456 web1 nginx[12]: {COMBINED}",
    ),
    "syslog in Docker": (
        "combined in syslog in docker",
        json.dumps({"log": f"Jun  9 12:10:07 web1 nginx: {COMBINED}\n", "stream": "stdout"}),
    ),
    "Papertrail": (
        "combined in papertrail",
        "9\t2025-06-09T12:10:07\t2025-06-09T12:10:08Z\t1\tweb\t10.0.0.1\tUser\tInfo\tnginx\t"
        + COMBINED,
    ),
    "Caddy's console": (
        "jsonl in zap",
        "2025/06/09 12:10:00.000\tINFO\thttp.log.access\thandled request\t"
        + json.dumps({"request": CADDY["request"], "status": 200}),
    ),
    "uWSGI": (
        "uwsgi",
        (
            f"[pid: 596|app: 0|req: 24/72] {IP} () {{50 vars in 1043 bytes}}"
            " [Mon Jun  9 12:10:00 2025] GET /tokens => generated 2 bytes in 149 msecs"
            " (HTTP/1.1 200) 3 headers in 112 bytes (1 switches on core 0)"
        ),
    ),
    "Jetty 8": (
        "jetty",
        COMBINED.replace(" - - ", " -  -  ").replace("612 ", "612  "),
    ),
    "Hypercorn": (
        "combined in gunicorn",
        f"[2025-06-09 12:10:00 +0000] [7] [INFO] {COMBINED.replace('HTTP/1.1', '1.1')}",
    ),
    "logcli": ("combined in loki", json.dumps({"labels": {"a": "b"}, "line": COMBINED})),
    "CloudWatch Insights": ("combined in cloudwatch", json.dumps({"@message": COMBINED})),
    "logcli, plain": (
        "combined in logcli",
        f'2025-06-09T12:10:07Z {{app="a}}b", job="web"}}  {COMBINED}',
    ),
    "Fluentd's files": (
        "jsonl in fluentd",
        "2025-06-09T14:10:00+02:00\tweb.access\t"
        + json.dumps({"remote": IP, "method": "GET", "path": "/tokens", "code": "200"}),
    ),
    "Fluentd's standard output": (
        "jsonl in syslog",
        "2025-06-09 21:10:00.000000000 +0900 web.access: "
        + json.dumps({"remote": IP, "method": "GET", "path": "/tokens", "code": "200"}),
    ),
    "uvicorn in journald": (
        "uvicorn in journald",
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": f"{AT_S}000000",
                "MESSAGE": f'INFO:     {IP}:5432 - "GET /tokens HTTP/1.1" 200 OK',
            }
        ),
    ),
    "text in Google Cloud": (
        "combined in gcp",
        json.dumps({"textPayload": COMBINED, "timestamp": "2025-06-09T12:10:07Z"}),
    ),
    "uvicorn behind Python's logger": (
        "uvicorn in python",
        f"2025-06-09 12:10:00,000 - uvicorn.access - INFO - {IP}:5432 - {REQUEST} 200",
    ),
    "Werkzeug behind Python's logger": (
        "common in python",
        "INFO:werkzeug:" + CLF.replace(":12:10:00 +0000", " 12:10:00"),
    ),
    "Rails": ("rails", f'Started GET "/tokens" for {IP} at 2025-06-09 12:10:00 +0000'),
    "Rails behind its logger, with a tag": (
        "rails in ruby",
        (
            "I, [2025-06-09T12:10:00.125461 #4711]  INFO -- : [2f1c-9] Started GET"
            f' "/tokens" for {IP} at 2025-06-09 14:10:00 +0200'
        ),
    ),
    "lograge": (
        "lograge in ruby",
        (
            "I, [2025-06-09T12:10:00.000000 #4711]  INFO -- : method=GET path=/tokens format=json"
            " controller=TokensController action=index status=200 duration=58.33 view=40.43"
            f" db=15.26 ip={IP} host=web1"
        ),
    ),
    "a process number first": ("combined in pid", f"4711 {COMBINED}"),
    "Gin": (
        "gin",
        f'[GIN] 2025/06/09 - 12:10:00 | 200 |     1.2ms |     {IP} | GET      "/tokens"',
    ),
    "aiohttp": ("aiohttp", COMBINED.replace(" - -", "")),
    "API Gateway, CLF": ("api-gateway", CLF.replace('] "', ']"') + " a1b2"),
    "Apache, ssl_request_log": (
        "ssl-request",
        f'[{STAMP}] {IP} TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256 "GET /tokens HTTP/1.1" 612',
    ),
    "Werkzeug": ("common", CLF.replace(":12:10:00 +0000", " 12:10:00")),
    "WEBrick": ("common", CLF.replace("+0000", "UTC")),
    "Caddy": ("caddy", json.dumps(CADDY)),
    "Caddy 2.4": (
        "caddy",
        json.dumps(
            {"ts": AT_S, "request": {"remote_addr": f"{IP}:4", "method": "GET", "uri": "/tokens"}}
        ),
    ),
    "Traefik, JSON": (
        "traefik",
        json.dumps(
            {
                "ClientAddr": f"{IP}:40000",
                "ClientHost": IP,
                "RequestMethod": "GET",
                "RequestPath": "/tokens",
                "StartUTC": "2025-06-09T12:10:00Z",
                "time": "2025-06-09T14:10:05+02:00",
            }
        ),
    ),
    "Envoy, JSON": (
        "envoy-json",
        json.dumps(
            {
                "start_time": "2025-06-09T12:10:00.000Z",
                "method": "GET",
                "path": "/tokens",
                "x_forwarded_for": None,
                "downstream_remote_address": f"{IP}:2",
            }
        ),
    ),
    "Elastic, nested": (
        "ecs",
        json.dumps(
            {
                "@timestamp": "2025-06-09T12:10:00Z",
                "source": {"ip": IP},
                "http": {"request": {"method": "GET"}},
                "url": {"path": "/tokens"},
            }
        ),
    ),
    "Elastic, dotted": (
        "ecs",
        json.dumps(
            {
                "@timestamp": "2025-06-09T12:10:00Z",
                "source.ip": IP,
                "http.request.method": "GET",
                "url.original": "/tokens",
            }
        ),
    ),
    "Google Cloud": (
        "gcp",
        json.dumps(
            {
                "timestamp": "2025-06-09T12:10:00.000000Z",
                "httpRequest": {
                    "requestMethod": "GET",
                    "requestUrl": "https://x.example/tokens",
                    "remoteIp": IP,
                    "status": 200,
                },
            }
        ),
    ),
    "pino": (
        "pino",
        json.dumps(
            {
                "level": 30,
                "time": AT_S * 1000,
                "req": {"method": "GET", "url": "/tokens", "remoteAddress": f"::ffff:{IP}"},
                "res": {"statusCode": 200},
                "msg": "request completed",
            }
        ),
    ),
    "Cloudflare": (
        "cloudflare",
        json.dumps(
            {
                "ClientIP": IP,
                "ClientRequestMethod": "GET",
                "ClientRequestURI": "/tokens",
                "EdgeStartTimestamp": AT_S * 10**9,
            }
        ),
    ),
    "Akamai": (
        "akamai",
        json.dumps(
            {"reqTimeSec": f"{AT_S}.000", "cliIP": IP, "reqMethod": "GET", "reqPath": "/tokens"}
        ),
    ),
    "OpenTelemetry": (
        "opentelemetry",
        json.dumps(
            {
                "timestamp": "2025-06-09T12:10:00Z",
                "attributes": {
                    "client.address": IP,
                    "http.request.method": "GET",
                    "url.path": "/tokens",
                },
            }
        ),
    ),
    "OpenTelemetry, older names": (
        "opentelemetry",
        json.dumps(
            {
                "Timestamp": str(AT_S * 10**9),
                "Attributes": {
                    "http.client_ip": IP,
                    "http.method": "GET",
                    "http.target": "/tokens",
                },
            }
        ),
    ),
    "Logstash": (
        "logstash",
        json.dumps(
            {
                "@timestamp": "2025-06-09T12:10:07Z",
                "timestamp": STAMP,
                "clientip": IP,
                "verb": "GET",
                "request": "/tokens",
                "httpversion": "1.1",
                "message": COMBINED,
            }
        ),
    ),
    "Kong": (
        "kong",
        json.dumps(
            {
                "client_ip": IP,
                "request": {"method": "GET", "uri": "/tokens"},
                "started_at": AT_S * 1000,
            }
        ),
    ),
    "AWS WAF": (
        "aws-waf",
        json.dumps(
            {
                "timestamp": AT_S * 1000,
                "httpRequest": {"clientIp": IP, "uri": "/tokens", "httpMethod": "GET"},
            }
        ),
    ),
    "Azure Application Gateway": (
        "azure-gateway",
        json.dumps(
            {
                "timeStamp": "2025-06-09T12:10:00Z",
                "properties": {"clientIP": IP, "httpMethod": "GET", "requestUri": "/tokens"},
            }
        ),
    ),
    "Azure Front Door": (
        "azure-gateway",
        json.dumps(
            {
                "time": "2025-06-09T12:10:00Z",
                "properties": {"clientIp": IP, "httpMethod": "GET", "requestUri": "/tokens"},
            }
        ),
    ),
    "Vercel": (
        "vercel",
        json.dumps(
            {
                "source": "lambda",
                "timestamp": AT_S * 1000 + 9,
                "path": "/other",
                "proxy": {
                    "timestamp": AT_S * 1000,
                    "clientIp": IP,
                    "method": "GET",
                    "path": "/tokens",
                    "statusCode": 200,
                },
            }
        ),
    ),
    "Ambassador": ("ambassador", f"ACCESS [2025-06-09T12:10:00.000Z] {REQUEST} 200 - {ENVOY}"),
    "Heroku's router": ("heroku in syslog", f"2025-06-09T12:10:00+00:00 heroku[router]: {HEROKU}"),
    "Heroku's drain": (
        "heroku in syslog",
        f"<158>1 2025-06-09T12:10:00+00:00 host heroku router - {HEROKU}",
    ),
    "Contour": (
        "envoy-json",
        json.dumps(
            {
                "@timestamp": "2025-06-09T12:10:00Z",
                "downstream_remote_address": f"{IP}:2",
                "method": "GET",
                "path": "/tokens",
            }
        ),
    ),
    "Envoy Gateway": (
        "envoy-json",
        json.dumps(
            {
                "start_time": "2025-06-09T12:10:00.000Z",
                "method": "GET",
                "x-envoy-origin-path": "/tokens",
                "x-forwarded-for": IP,
                "downstream_remote_address": "10.0.0.9:2",
            }
        ),
    ),
    "OpenTelemetry, a record of OTLP": (
        "opentelemetry",
        json.dumps(
            {
                "timeUnixNano": f"{AT_S}000000000",
                "attributes": [
                    {"key": "client.address", "value": {"stringValue": IP}},
                    {"key": "http.request.method", "value": {"stringValue": "GET"}},
                    {"key": "url.path", "value": {"stringValue": "/tokens"}},
                    {"key": "http.response.status_code", "value": {"intValue": "200"}},
                ],
            }
        ),
    ),
    "Tyk": (
        "jsonl",
        json.dumps(
            {
                "Method": "GET",
                "Path": "/tokens",
                "IPAddress": IP,
                "TimeStamp": "2025-06-09T12:10:00Z",
                "RequestTime": 12,
            }
        ),
    ),
    "Fluent Bit, parsed": (
        "jsonl",
        json.dumps({"date": AT_S, "remote": IP, "method": "GET", "path": "/tokens"}),
    ),
    "a logger that writes methods in lower case": (
        "jsonl",
        json.dumps({"@t": AT_S, "x_forwarded_for": IP, "method": "get", "path": "/tokens"}),
    ),
    "CloudFront, JSON": (
        "jsonl",
        json.dumps(
            {
                "date": "2025-06-09",
                "time": "12:10:00",
                "c-ip": IP,
                "cs-method": "GET",
                "cs-uri-stem": "/tokens",
            }
        ),
    ),
    "a day beside a duration": (
        "jsonl",
        json.dumps(
            {"date": "2025-06-09T12:10Z", "time": 0.1, "ip": IP, "method": "GET", "path": "/tokens"}
        ),
    ),
    "JSON of nginx": (
        "jsonl",
        json.dumps({"msec": f"{AT_S}.000", "remote_addr": IP, "request": "GET /tokens HTTP/1.1"}),
    ),
    "JSON of nginx, with a path that it has rewritten": (
        "jsonl",
        json.dumps(
            {
                "@timestamp": "2025-06-09T12:10:00Z",
                "remote_addr": IP,
                "uri": "/index.php",
                "request_uri": "/tokens",
                "request_method": "GET",
            }
        ),
    ),
    "JSON of nginx, with a rewritten path and the request line": (
        "jsonl",
        json.dumps(
            {
                "@timestamp": "2025-06-09T12:10:00Z",
                "remote_addr": IP,
                "uri": "/index.php",
                "request": "GET /tokens HTTP/1.1",
                "request_method": "GET",
            }
        ),
    ),
    "JSON of nginx, whose request_time is a duration": (
        "jsonl",
        json.dumps(
            {
                "request_time": 0.003,
                "msec": f"{AT_S}.000",
                "remote_addr": IP,
                "request": "GET /tokens HTTP/1.1",
            }
        ),
    ),
    "a day and a duration beside the time": (
        "jsonl",
        json.dumps(
            {
                "date": "2025-06-09",
                "time": 0.003,
                "timestamp": "2025-06-09T12:10:00Z",
                "ip": IP,
                "method": "GET",
                "path": "/tokens",
            }
        ),
    ),
    "a duration beside the time": (
        "jsonl",
        json.dumps(
            {
                "time": 0.003,
                "timestamp": "2025-06-09T12:10:00Z",
                "ip": "10.0.0.1",
                "client_ip": IP,
                "method": "GET",
                "path": "/tokens",
            }
        ),
    ),
    "an element of Forwarded": (
        "jsonl",
        json.dumps(
            {
                "time": AT_S,
                "ip": f'proto=https;for="[::ffff:{IP}]:4711", for=10.0.0.1',
                "method": "GET",
                "path": "/tokens",
            }
        ),
    ),
    "API Gateway": (
        "jsonl",
        json.dumps({"ip": IP, "requestTime": STAMP, "httpMethod": "GET", "path": "/tokens"}),
    ),
    "JSON, pretty": (
        "jsonl",
        json.dumps([{"time": AT_S, "client_ip": IP, "method": "GET", "path": "/tokens"}], indent=2),
    ),
    "JSON, pretty, without an array": (
        "jsonl",
        json.dumps({"time": AT_S, "client_ip": IP, "method": "GET", "path": "/tokens"}, indent=2),
    ),
    "CSV": ("csv", f"time,client_ip,method,path\n2025-06-09T12:10:00Z,{IP},GET,/tokens"),
    "CSV with other marks in a name": (
        "csv",
        f'time,"client_ip",method,path,"a;b;c;d;e;f"\n{AT_S},"{IP}",GET,/tokens,-',
    ),
    "TSV": ("csv", f"ts\tremote_addr\trequest\n{AT_S}\t{IP}\tGET /tokens HTTP/1.1"),
    "CSV with day and time of day apart": (
        "csv",
        f"date,time,c-ip,cs-method,cs-uri-stem\n2025-06-09,12:10:00,{IP},GET,/tokens",
    ),
    "CSV with compact dates": (
        "csv",
        f"date,time,ip,method,path\n20250609,121000,{IP},GET,/tokens",
    ),
    "CSV of Logstash's fields, with the path of the log's file": (
        "csv",
        (
            "timestamp,clientip,verb,request,path\n"
            f"{STAMP},{IP},GET,/tokens,/var/log/nginx/access.log"
        ),
    ),
    "CSV from Kibana": (
        "csv",
        (
            "@timestamp,client.ip,http.request.method,url.original,http.response.status_code\n"
            f"2025-06-09T12:10:00.000Z,{IP},GET,/tokens,200"
        ),
    ),
    "CSV from Google Cloud": (
        "csv",
        (
            "httpRequest.remoteIp,httpRequest.requestMethod,httpRequest.requestUrl,"
            "receiveTimestamp,timestamp\n"
            f"{IP},GET,https://x.example/tokens,2025-06-09T12:10:09Z,2025-06-09T12:10:00Z"
        ),
    ),
    "CSV from Athena, of a load balancer": (
        "csv",
        (
            "time,client_ip,request_verb,request_url,request_creation_time\n"
            f"2025-06-09T12:10:04Z,{IP},GET,https://x.example/tokens,2025-06-09T12:10:00Z"
        ),
    ),
    "CSV with a whole time beside a day": (
        "csv",
        f"date,time,ip,method,path\n2025-06-09,2025-06-09T12:10:00Z,{IP},GET,/tokens",
    ),
}


def read(path: Path, **options: Any) -> tuple[str, list[tuple[Any, ...]], dict[str, Any]]:
    """Return a log's format, its requests, and how it was read."""
    log = stream_log(path, **options)
    requests = []
    for batch in log.batches():
        for row, t_ns in enumerate(batch.t_ns.tolist()):
            names = ("address", "method", "path")
            ip, method, target = (str(log.names[name][batch.codes[name][row]]) for name in names)
            requests.append((t_ns, ip, method, target.partition("?")[0]))
    return log.format, requests, log.reading


@pytest.mark.parametrize("form", list(LINES))
def test_what_a_tool_writes_is_read_as_it_is_meant(tmp_path: Path, form: str) -> None:
    expected, text = LINES[form]
    log = tmp_path / "access.log"
    log.write_text(text + "\n")
    name, requests, reading = read(log)
    assert (name, requests) == (expected, [(AT_S * 10**9, IP, "GET", "/tokens")])
    assert reading["lines_skipped"] == 0
    assert reading["format"] == expected
    # Stated by its name, it is read alike.
    assert read(log, format=expected.partition(" ")[0])[:2] == (name, requests)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (f'{COMBINED} "198.51.100.7, 198.51.100.8"', "extra1"),
        (f'{COMBINED} 0.003 10.0.0.5:80 "198.51.100.7"', "extra3"),
        (f"{COMBINED} 0.003 10.0.0.5:80", None),
        (
            LINES["HAProxy behind syslog"][1].replace("{1wt.eu} {}", "{198.51.100.7|curl}"),
            "captures",
        ),
        (LINES["HAProxy behind syslog"][1], None),
        (
            json.dumps(
                {"time": AT_S, "ip": IP, "x_forwarded_for": IP, "method": "GET", "path": "/tokens"}
            ),
            "x_forwarded_for",
        ),
        (
            json.dumps(
                {
                    "time": AT_S,
                    "clientIp": IP,
                    "seen": [IP, "10.0.0.1"],
                    "method": "GET",
                    "url": "/",
                }
            ),
            "seen",
        ),
        (
            json.dumps(
                {
                    "time": AT_S * 1000,
                    "req": {
                        "method": "GET",
                        "url": "/tokens",
                        "headers": {"x-forwarded-for": "198.51.100.7"},
                        "remoteAddress": IP,
                    },
                }
            ),
            "req.headers.x-forwarded-for",
        ),
    ],
)
def test_addresses_that_nobody_reads_are_named(
    tmp_path: Path, text: str, field: str | None
) -> None:
    """Behind a proxy the first address is the proxy's, and all clients would count as one."""
    log = tmp_path / "access.log"
    log.write_text(text + "\n")
    note = "" if field is None else f"; {field} holds addresses too, a map can take it"
    assert read(log)[2]["fields"]["address"].partition(";")[2] == note.removeprefix(";")


@pytest.mark.parametrize(
    ("rounded", "exact"),
    [
        ({"time_iso8601": "2025-06-09T12:10:00+00:00"}, {"msec": f"{AT_S}.250"}),
        ({"requestTime": STAMP}, {"requestTimeEpoch": AT_S * 1000 + 250}),
    ],
)
def test_of_two_times_the_finer_one_is_read(
    tmp_path: Path, rounded: dict[str, Any], exact: dict[str, Any]
) -> None:
    log = tmp_path / "access.log"
    request = {"ip": IP, "method": "GET", "path": "/tokens"}
    log.write_text(json.dumps({**rounded, **exact, **request}) + "\n")
    assert read(log)[1] == [(AT_S * 10**9 + 250_000_000, IP, "GET", "/tokens")]


@pytest.mark.parametrize("mark", ["\t", ","])
@pytest.mark.parametrize("closing", ["", '"Opera'])
def test_a_quote_that_takes_rows_into_a_cell_is_named(
    tmp_path: Path, mark: str, closing: str
) -> None:
    """A raw quote in a user agent took the rows below along, and nothing was said."""
    log = tmp_path / "access.log"
    agents = ["curl", '"Mozilla', "curl", closing or "curl"]
    rows = [mark.join([str(AT_S), IP, "GET", "/tokens", agent]) for agent in agents]
    log.write_text("\n".join([mark.join(["time", "ip", "method", "path", "agent"]), *rows]) + "\n")
    _, requests, reading = read(log)
    assert requests == [(AT_S * 10**9, IP, "GET", "/tokens")]
    assert reading["lines_skipped"] == 3


def test_a_cell_of_several_lines_is_a_cell(tmp_path: Path) -> None:
    log = tmp_path / "access.csv"
    log.write_text(f'time,ip,note,method,path\n{AT_S},{IP},"a, b\nc\n",GET,/tokens\n')
    assert read(log)[1] == [(AT_S * 10**9, IP, "GET", "/tokens")]


def test_every_format_and_wrapper_has_a_line_here() -> None:
    formats = {name.partition(" ")[0] for name, _ in LINES.values()} | {"parquet", "tollgate"}
    assert formats == set(FORMATS)
    wrappers = {wrapper for name, _ in LINES.values() for wrapper in name.split(" in ")[1:]}
    assert wrappers == {wrapper.name for wrapper in WRAPPERS}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"203.0.113.9 {COMBINED}", "must be in a known format"),
        ("GET /tokens 200 1.234 ms - 12", "must be in a known format"),
        (f'INFO:     {IP}:5432 - "GET /tokens HTTP/1.1" 200 OK', "time must be a field of the log"),
        (
            f"2025-06-09T12:10:00Z,{IP},GET,/tokens",
            "the first row must name the columns, and holds values; name the 4 columns in a map",
        ),
        (json.dumps([[AT_S, IP, "GET", "/tokens"]]), "the first row must name the columns"),
        (json.dumps({"Records": [{"ip": IP}]}), r"Records\[\] holds several, write each of them"),
        (
            json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": "x"}]}]}]}),
            r"jq -c '\.resourceLogs\[\]\.scopeLogs\[\]\.logRecords\[\]' LOG > records\.jsonl",
        ),
        ("\r".join([COMBINED] * 3), "must end its lines in line feeds, not in carriage returns"),
        (
            f"time,ip,method,path\n06/09/2025 12:10:00 PM,{IP},GET,/x",
            "convert such times first, or name another field in a map",
        ),
        (
            "\n".join(
                (
                    f'Started GET "/x" for {IP} at 2025-06-09 12:10:00 +0000',
                    "Processing by TokensController#index as JSON",
                    "Completed 200 OK in 12ms (Views: 3.2ms)",
                )
            ),
            "must be rails, but 2 of 3 lines do not parse; .* state --format to replay the others",
        ),
        (f"access.log.1:{COMBINED}", "address must stand alone; something precedes it"),
        (f"17:{COMBINED}", "address must stand alone"),
        (COMBINED.replace("- -", "- 198.51.100.7"), "must be in a known format"),
        (COMBINED.replace(IP, "unix:"), "address must be an IP address"),
        (f"date,ip,method,path\n20250609,{IP},GET,/x", "time must be like"),
        (f"time,ip,method,path\n{AT_S},{IP},GET,GET /x HTTP/1.1", "path must begin with /"),
        (f"time,ip,method,path\n{AT_S},{IP},GET,tokens", "path must begin with /"),
        (
            json.dumps({"request_time": 0.003, "remote_addr": IP, "request": "GET /x HTTP/1.1"}),
            "request_time seems to hold durations. Name the time",
        ),
        (
            "\n".join(["time,ip,method,path", *(f"{n * 7 % 10},{IP},GET,/x" for n in range(9))]),
            "time seems to hold durations. Name the time",
        ),
        (json.dumps({"time": AT_S, "ip": IP}), "method, path must be a field of the log"),
        (f"- {COMBINED.removeprefix(IP + ' ')}", "address is missing"),
        (COMBINED.replace(IP, f"tcp://{IP}:80"), "address must stand alone"),
        (
            json.dumps(
                {"date": "2025-06-09", "time": 0.003, "ip": IP, "method": "GET", "path": "/x"}
            ),
            "time seems to hold durations. Name the time",
        ),
        (
            "\n".join(
                json.dumps({"ts": 45_817.5 + n / 4096, "ip": IP, "method": "GET", "path": "/x"})
                for n in range(9)
            ),
            "ts seems to hold days of a spreadsheet, convert it first",
        ),
        (
            json.dumps({"ts": 133_939_518_000_000_000, "ip": IP, "method": "GET", "path": "/x"}),
            "ts seems to hold ticks of 100 ns, convert it first",
        ),
        (
            json.dumps({"ts": 638_850_678_000_000_000, "ip": IP, "method": "GET", "path": "/x"}),
            "ts seems to hold ticks of 100 ns",
        ),
        ("#Fields: time c-ip cs-method cs-uri\n12:10:00 203.0.113.9 GET /x", "time must be like"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_next_step(
    tmp_path: Path, text: str, why: str
) -> None:
    """Two addresses: nothing says which is the client's."""
    log = tmp_path / "access.log"
    log.write_text(text + "\n")
    with pytest.raises(InputError, match=why) as caught:
        read(log)
    assert str(caught.value).isprintable()
