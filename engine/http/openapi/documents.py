"""The documents: every operation of the registry, its parameters, bodies, answers and links.

`full` describes this engine. `floor` describes what every conforming service must accept, and omits
the answers of operations whose shapes the specification does not show. `ceiling` describes the most
that a conforming service may accept. `floor` and `ceiling` leave statuses open, as D-STATUS does.

`answers` gives the schemas of records, pages and problems for a profile (section 2.1, D-PROBLEM).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from importlib import metadata
from typing import Any, Final, get_args

from engine.clauses import clause
from engine.http.openapi.schemas import (
    CURSOR,
    HEADERS,
    PARAMETERS,
    REFUSAL,
    SHAPES,
    Schema,
    Shape,
    back,
    container_schema,
    example_of,
    ref,
    request_schema,
    requests,
)
from engine.messages import PROBLEM_TYPE, Problem
from engine.profile import HttpProfile, Profile
from engine.resources import (
    OPERATIONS,
    Operation,
    account_updater,
    applications,
    proxies,
    reactors,
    tokens,
)
from engine.resources.bodies import MEDIA_TYPES
from engine.resources.documents import LIMIT_SIZE
from engine.resources.operation import (
    IDEMPOTENCY_FORM,
    IDEMPOTENCY_KEY,
    INSTANT,
    METHODS,
    TEXT,
    TEXTS,
    UUID,
    object_schema,
)
from engine.tokens.rules import STRUCTURED_TYPES, SchemaKind


def answers(profile: Profile) -> dict[str, Schema]:
    """Return the schemas of the answers of this engine."""
    passes = profile.tokens.non_string_leaf == "pass"
    return {
        "Problem": _problem(),
        "TokenizeAnswer": {
            "anyOf": [
                UUID,
                ref("TokenRecord"),
                ref("MirroredObject"),
                {"type": "array", "items": back("TokenizeAnswer")},
                *([{"type": ["number", "boolean", "null"]}] if passes else []),
            ],
            "description": "The structure of the body: identifiers and records in their places.",
        },
        "MirroredObject": {"type": "object", "additionalProperties": back("TokenizeAnswer")},
        "TokenRecord": token_record(profile),
        **{
            f"{name.title()}Mask": {**structured_type.mask_schema}
            for name, structured_type in STRUCTURED_TYPES.items()
        },
        **_records(),
        **_pages(),
    }


def _mask() -> Schema:
    """Return the schema of the mask of any structured type."""
    masks = [ref(f"{name.title()}Mask") for name in STRUCTURED_TYPES]
    return masks[0] if len(masks) == 1 else {"anyOf": masks}


def _problem() -> Schema:
    return object_schema(
        {
            "type": {
                "type": "string",
                "format": "uri-reference",
                "description": "The clause that is broken, on a page of the service.",
            },
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "clause": {"type": "string", "description": "The clause that is broken, where one is."},
            "errors": {
                "type": "object",
                "description": "JSON Pointers into the body → what is wrong there.",
                "additionalProperties": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                },
            },
        },
        ("type", "title", "status", "detail"),
        description="RFC 9457. No message quotes a sensitive value.",
    )


def token_record(profile: Profile, *, is_open: bool = False) -> Schema:
    """Return the schema of a token record (section 2.1); open where a deployment may add fields."""
    strings = {"type": "object", "additionalProperties": {"type": "string"}}
    data = _mask()
    if profile.tokens.plaintext_reads or is_open:
        data = {}
    record = object_schema(
        {
            "id": UUID,
            "tenant_id": UUID,
            "type": {"type": "string"},
            "data": data,
            "mask": {"type": "object"} if is_open else _mask(),
            "metadata": strings,
            "search_indexes": TEXTS,
            "fingerprint": {"type": "string", "minLength": 1},
            "fingerprint_expression": {"type": "string"},
            "containers": TEXTS,
            "created_by": UUID,
            "created_at": INSTANT,
            "_extras": {
                "type": "object",
                "properties": {"deduplicated": {"type": "boolean"}},
                "required": ["deduplicated"],
            },
        },
        ("id", "tenant_id", "type", "_extras"),
    )
    if is_open:
        del record["additionalProperties"]
    return record


def _records() -> dict[str, Schema]:
    """Return the records of all resources but tokens."""
    job = account_updater.VIEW
    intent = {**tokens.INTENT_VIEW.fields, "mask": _mask()}
    return {
        "Application": applications.VIEW.schema(),
        "ApplicationKey": applications.KEY_VIEW.schema(),
        "ApplicationKeyCreated": applications.KEY_VIEW.schema(key=TEXT),
        "EncryptionKey": applications.PAIR_VIEW.schema(),
        "EncryptionKeyCreated": applications.PAIR_VIEW.schema(public_key={"type": "object"}),
        "LogEntry": applications.LOG_VIEW.schema(),
        "Tenant": applications.TENANT_VIEW.schema(),
        "TokenIntent": object_schema(intent, tuple(name for name in intent if name != "mask")),
        "Reactor": reactors.VIEW.schema(),
        "ReactorAnswer": object_schema({"tokens": {}, "raw": {}}, ("tokens", "raw")),
        "Proxy": proxies.VIEW.schema(),
        "ProxyCreated": proxies.VIEW.schema(key=TEXT),
        "Job": object_schema(
            {**job.fields, "download_url": TEXT, "error": TEXT}, tuple(job.fields)
        ),
        "JobCreated": job.schema(upload_url=TEXT),
    }


def _pages() -> dict[str, Schema]:
    """Return the pages of the lists (D-LIST)."""
    pagination = object_schema(
        {"next": {"type": ["string", "null"]}, "page_size": {"type": "integer", "minimum": 1}},
        ("next", "page_size"),
    )
    names = {shape.answer for shape in SHAPES.values() if shape.answer.endswith("Page")}
    return {
        page: object_schema(
            {
                "pagination": pagination,
                "data": {"type": "array", "items": ref(page.removesuffix("Page"))},
            },
            ("pagination", "data"),
        )
        for page in sorted(names)
    }


KINDS: Final[tuple[SchemaKind, ...]] = get_args(SchemaKind)

_TAGS: Final[dict[str, str]] = {
    "tokenize": "Create many tokens in one request.",
    "tokens": "Create, read, search, change and delete tokens.",
    "detokenize": "Replace token expressions by plaintext.",
    "token-intents": "Store sensitive data for a later tokenize call.",
    "keys": "Encryption keys of clients that send encrypted payloads.",
    "logs": "The tenant's log.",
    "tenants": "The caller's tenant and its quotas.",
    "applications": "Applications, their grants and their API keys.",
    "reactors": "Code that runs on detokenized data.",
    "proxies": "Pre-configured proxies.",
    "proxy": "Pass requests on to a proxy's destination.",
    "account-updater": "Jobs that update card data in batches.",
    "batch-files": "Upload of a job's batch file.",
}
"""By the first segment of an operation's path."""

_DESCRIPTIONS: Final[dict[SchemaKind, str]] = {
    "full": "What this engine does, for its profile.",
    "floor": "What every conforming service must accept: a closed schema. Run it with valid data.",
    "ceiling": (
        "What a conforming service may accept at most: an open schema, whose complement must be "
        "refused. Run it with invalid data."
    ),
}
_QUERY: Final[dict[str, Schema]] = {
    "start_date": {"type": "string", "format": "date-time"},
    "end_date": {"type": "string", "format": "date-time"},
}


_FILTERS: Final[Schema] = {  # query parameters are strings
    "type": "object",
    "propertyNames": {"pattern": r"^metadata\."},
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}
_PLAIN_FILTERS: Final[Schema] = {
    "type": "object",
    "propertyNames": {"pattern": r"^metadata\.[a-z]{1,20}$"},
    "additionalProperties": {"type": "string"},
    "maxProperties": 3,
}


def document(kind: SchemaKind, profile: Profile) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document as plain JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        for path, method, name in _places(operation):
            builder = _Builder(operation, kind, profile, name)
            paths.setdefault(path, {})[method.lower()] = builder.operation_object()
    http = profile.http
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate" if kind == "full" else f"Tollgate, {kind}",
            "version": metadata.version("tollgate"),
            "description": _DESCRIPTIONS[kind],
            "contact": {"name": "The Tollgate authors"},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(kind, profile),
            "responses": _problems(http) if kind == "full" else {},
            "headers": _headers(http) if kind == "full" else {},
            "securitySchemes": {
                "apiKey": {"type": "apiKey", "in": "header", "name": http.key_header},
                "proxyKey": {"type": "apiKey", "in": "header", "name": http.proxy_key_header},
            },
        },
    }


def _places(operation: Operation) -> Iterator[tuple[str, str, str]]:
    """Return (path, method, operation id): a proxy has one for each method and both its paths."""
    if operation.method != "ANY":
        yield operation.path, operation.method, operation.name
        return
    start, _, _ = operation.path.partition("/{")
    for method in METHODS:
        yield start, method, f"{operation.name}_{method.lower()}"
        yield f"{start}/{{path}}", method, f"{operation.name}_path_{method.lower()}"


def _schemas(kind: SchemaKind, profile: Profile) -> dict[str, Schema]:
    asked = requests(kind, profile)
    if kind == "full":
        return {**asked, **answers(profile)}
    if kind == "ceiling":
        return asked
    # A key of a plain object may be `id` or `type` too: the mirror is an object all the same.
    mirror = {
        "anyOf": [
            {"type": "string", "format": "uuid"},
            ref("TokenRecord"),
            {
                "type": "object",
                "propertyNames": {"not": {"const": "type"}},
                "additionalProperties": ref("TokenizeAnswer"),
            },
            {"type": "array", "items": ref("TokenizeAnswer")},
        ]
    }
    record = token_record(profile, is_open=True)
    return {**asked, "TokenizeAnswer": mirror, "TokenRecord": record}


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds one operation object."""

    _operation: Operation
    _kind: SchemaKind
    _profile: Profile
    _name: str

    @property
    def _shape(self) -> Shape:
        return SHAPES[self._operation.name]

    def operation_object(self) -> dict[str, Any]:
        """Return the object."""
        operation = self._operation
        described: dict[str, Any] = {
            "operationId": self._name,
            "summary": operation.summary,
            "description": self._description(),
            "tags": [operation.path.split("/")[1]],
            "x-clause": list(operation.clauses),
            "x-tier": operation.tier,
            "security": self._security(),
        }
        parameters = [
            *self._path_parameters(),
            *self._query_parameters(),
            *self._header_parameters(),
        ]
        if parameters:
            described["parameters"] = parameters
        body = self._request_body()
        if body is not None:
            described["requestBody"] = body
        described["responses"] = self._responses()
        return described

    def _description(self) -> str:
        """Return the summary, and what each of the operation's clauses requires."""
        clauses = [f"- **{name}**: {clause(name).text}" for name in self._operation.clauses]
        summary = self._operation.summary
        return "\n".join([summary, "", *clauses]) if clauses else summary

    def _security(self) -> list[dict[str, list[str]]]:
        authentication = self._operation.authentication
        if authentication == "key":
            return [{"apiKey": []}]
        return (
            [] if authentication == "none" else [{"proxyKey": []}, {"proxyKey": [], "apiKey": []}]
        )

    def _path_parameters(self) -> Iterator[dict[str, Any]]:
        names = [s.strip("{}.") for s in self._operation.path.split("/") if s.startswith("{")]
        for name in names:
            if name == "path" and "_path_" not in self._name:
                continue
            schema: Schema = {"type": "string", "minLength": 1}
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "schema": schema,
                "example": PARAMETERS[name],
            }

    def _header_parameters(self) -> Iterator[dict[str, Any]]:
        if self._kind == "full" and self._operation.creates and self._keeps_answers:
            yield {
                "name": IDEMPOTENCY_KEY,
                "in": "header",
                "description": "Create once, however often this request is sent (D-IDEMPOTENCY).",
                "schema": {"type": "string", "pattern": f"^{IDEMPOTENCY_FORM}$"},
                "example": PARAMETERS[IDEMPOTENCY_KEY],
            }

    @property
    def _keeps_answers(self) -> bool:
        return self._profile.http.idempotency == "keep"

    def _query_parameters(self) -> Iterator[dict[str, Any]]:
        operation = self._operation
        if self._kind == "ceiling":
            return
        if operation.paged:
            size = {"type": "integer", "minimum": 1, "maximum": LIMIT_SIZE}
            cursor = {"type": "string", "pattern": CURSOR}
            for name, schema in (("size", size), ("start", cursor)):
                yield {"name": name, "in": "query", "schema": schema, "example": PARAMETERS[name]}
        for name in operation.query:
            if "<" in name:
                yield {
                    "name": name.partition(".")[0],
                    "in": "query",
                    "style": "form",
                    "explode": True,
                    "description": "`metadata.KEY=value`: only tokens with this entry.",
                    "schema": _FILTERS if self._kind == "full" else _PLAIN_FILTERS,
                    "example": PARAMETERS["metadata"],
                }
                continue
            schema = _QUERY.get(name, {"type": "string"})
            if name == "container":
                schema = container_schema(self._profile.tokens)
            required = operation.authentication == "none"
            yield {
                "name": name,
                "in": "query",
                "required": required,
                "schema": schema,
                "example": PARAMETERS[name],
            }

    def _request_body(self) -> dict[str, Any] | None:
        operation = self._operation
        if operation.body == "none":
            return None
        if operation.body == "raw":
            if operation.method == "ANY":
                if "_get" in self._name or "_delete" in self._name:
                    return None
                return {"required": False, "content": {"application/json": {"schema": {}}}}
            content: dict[str, Any] = {
                "text/csv": {"schema": TEXT, "example": account_updater.HEADER + "\n"},
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "example": account_updater.HEADER + "\n",
                },
            }
            return {"required": True, "content": content}
        media: dict[str, Any] = {
            "schema": request_schema(operation, self._kind, self._profile),
        }
        if self._kind != "ceiling":
            media["examples"] = {
                name: {"value": value} for name, value in self._shape.examples.items()
            }
        return {
            "required": not operation.body_optional,
            "content": {MEDIA_TYPES[operation.body]: media},
        }

    # --- answers ---------------------------------------------------------------------------------

    def _responses(self) -> dict[str, Any]:
        if self._kind != "full":
            return self._open_responses()
        responses: dict[str, Any] = {}
        if self._shape.answer == "destination":
            answer = {"description": "The destination's answer, whatever it is."}
            responses |= {"2XX": answer, "default": answer}
        else:
            responses[str(self._success_status())] = self._success()
        for status in sorted(self._error_statuses()):
            name = f"Problem{status}"
            if status == 415 and self._operation.body == "merge-patch":
                name = _PATCH_415
            responses[str(status)] = {"$ref": f"#/components/responses/{name}"}
        return responses

    def _open_responses(self) -> dict[str, Any]:
        good: dict[str, Any] = {"description": "Done."}
        if self._kind == "floor" and self._operation.tier == "specified":
            good["content"] = {"application/json": {"schema": ref(self._shape.answer)}}
        if self._kind == "floor" and self._shape.links:
            good["links"] = copy.deepcopy(self._shape.links)
        return {
            "2XX": good,
            "4XX": {"description": "Refused."},
            "5XX": {"description": "Failed."},
        }

    def _success_status(self) -> int:
        operation = self._operation
        if operation.name == "tokenize":
            return self._profile.http.tokenize_status
        return operation.success_status

    @property
    def _is_located(self) -> bool:
        """Whether the answer names the path of what was created: where that can be read."""
        action, _, what = self._operation.name.partition("_")
        return action == "create" and f"get_{what}" in SHAPES

    def _success(self) -> dict[str, Any]:
        shape = self._shape
        names = (*_RATES, "Location") if self._is_located else _RATES
        headers = _header_refs(self._profile.http, *names)
        response: dict[str, Any] = {"description": "Done.", "headers": headers}
        if shape.answer == "csv":
            response["content"] = {
                "text/csv": {"schema": TEXT, "example": account_updater.RESULT_HEADER + "\n"}
            }
        elif shape.answer:
            response["content"] = {"application/json": self._json_answer(shape.answer)}
        if shape.links:
            response["links"] = copy.deepcopy(shape.links)
        return response

    def _json_answer(self, name: str) -> dict[str, Any]:
        if name == "any":
            return {"schema": {}, "example": next(iter(self._shape.examples.values()))}
        if name == "TokenizeAnswer":  # of the first example of a request
            return {
                "schema": ref(name),
                "example": {"name": PARAMETERS["id"], "email": PARAMETERS["key_id"]},
            }
        schemas = answers(self._profile)
        return {"schema": ref(name), "example": example_of(schemas[name], schemas)}

    def _error_statuses(self) -> set[int]:
        operation, profile = self._operation, self._profile
        statuses = {400, 414, 429, 431, 500, 503, *self._shape.statuses}
        if operation.authentication != "none":
            statuses.add(401)
        if operation.permission is not None:
            statuses.add(403)
        if "{id}" in operation.path:
            statuses.add(404)
        if operation.body != "none":
            statuses.add(413)
        if operation.body in MEDIA_TYPES or operation.name == "upload_batch_file":
            statuses.add(415)
        if operation.creates and self._keeps_answers:
            statuses.add(422)
        if operation.name in {"tokenize", "create_token", "detokenize", "invoke_reactor"}:
            statuses.add(profile.tokens.limit_status)
        if operation.name in {"invoke_reactor", "invoke_proxy"}:
            statuses.add(profile.outside.reactor_timeout_status)
        return statuses


_ID: Final = "X-Request-Id"
_CORS: Final = ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers")
_RATES: Final = ("RateLimit", "RateLimit-Policy")
_OF_STATUS: Final = {
    401: ("WWW-Authenticate",),
    415: ("Accept-Encoding",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
_PATCH_415: Final = "Problem415OfPatch"
_BEFORE_THE_ENGINE: Final = (431, 500, 503)
_MEANINGS: Final = {
    408: "The destination took too long (PRX-TIMEOUT).",
    414: "The target is too long.",
    422: "This Idempotency-Key was already used with a different body, or a quota is exceeded.",
    431: "The header section is too large. Counts in no limit.",
    503: "Too many connections, or too many large bodies at once.",
}
_STATUSES: Final = (
    400, 401, 403, 404, 408, 409, 413, 414, 415, 422, 429, 431, 500, 502, 503, 504,
)  # fmt: skip  # reason: one row


def _headers(http: HttpProfile) -> dict[str, Any]:
    """Return the header fields; those of the limits where the profile has them (D-429-HEADERS)."""
    rule = '"[^"]+"'
    fields: dict[str, tuple[str, Schema]] = {
        _ID: ("The request's id: as sent, or a new one.", {"type": "string"}),
        "Access-Control-Allow-Origin": (
            "Where a web page of the application uses its public key (D-CORS).",
            {"type": "string"},
        ),
        "Access-Control-Expose-Headers": (
            "Sent with it: the header fields that a script may read.",
            {"type": "string"},
        ),
        "RateLimit": (
            "The rule with the least room: requests left, and seconds until its counter is empty.",
            {"type": "string", "pattern": f"^{rule};r=[0-9]+;t=[0-9]+$"},
        ),
        "RateLimit-Policy": (
            "That rule's quota and window in seconds.",
            {"type": "string", "pattern": f"^{rule};q=[0-9]+;w=[0-9]+$"},
        ),
        "Retry-After": ("Whole seconds.", {"type": "integer", "minimum": 1}),
        "Accept-Encoding": (
            "Sent with 415: the content codings the server accepts.",
            {"type": "string"},
        ),
        "Accept-Patch": (
            "Sent with 415 to PATCH: the media type the server accepts.",
            {"type": "string"},
        ),
        "WWW-Authenticate": ("Which key is needed.", {"type": "string"}),
        "Location": ("Path of what was created.", {"type": "string"}),
    }
    return {
        name: {"description": text, "schema": schema, "example": HEADERS[name]}
        for name, (text, schema) in fields.items()
        if name not in _left_out(http)
    }


def _left_out(http: HttpProfile) -> set[str]:
    left_out = set() if http.rate_limit_fields else {*_RATES}
    return left_out if http.retry_after else left_out | {"Retry-After"}


def _header_refs(http: HttpProfile, *names: str) -> dict[str, Any]:
    left_out = _left_out(http)
    return {
        name: {"$ref": f"#/components/headers/{name}"}
        for name in (_ID, *_CORS, *names)
        if name not in left_out
    }


def _problem_example(status: int) -> Any:  # noqa: ANN401 # reason: any JSON
    if status == REFUSAL.status:
        return REFUSAL.body
    return Problem(status, f"{HTTPStatus(status).phrase}.").response().body


def _problems(http: HttpProfile) -> dict[str, Any]:
    """Return the problem answers (D-PROBLEM), by status; 415 is another one to a merge patch."""
    responses: dict[str, Any] = {}
    for status in _STATUSES:
        rates = () if status in _BEFORE_THE_ENGINE else _RATES
        headers = _header_refs(http, *rates, *_OF_STATUS.get(status, ()))
        if status in {431, 503}:  # a head that was never read has no id
            for name in (_ID, *_CORS):
                del headers[name]
        responses[f"Problem{status}"] = {
            "description": _MEANINGS.get(status, HTTPStatus(status).phrase),
            "headers": headers,
            "content": {
                PROBLEM_TYPE: {"schema": ref("Problem"), "example": _problem_example(status)}
            },
        }
    headers, of_429 = _headers(http), responses[f"Problem{REFUSAL.status}"]["headers"]
    for name in of_429.keys() & REFUSAL.headers.keys():  # of the one refusal whose body is shown
        schema = headers[name]["schema"]
        value = REFUSAL.headers[name]
        example = int(value) if schema["type"] == "integer" else value
        of_429[name] = {**headers[name], "example": example}
    headers = {**responses["Problem415"]["headers"], **_header_refs(http, "Accept-Patch")}
    responses[_PATCH_415] = {**responses["Problem415"], "headers": headers}
    return responses
