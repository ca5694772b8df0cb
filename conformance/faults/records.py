"""Faults of the token record (section 2.1): what it shows, what it hides, and in which form."""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from conformance.context.answers import elements_in, is_request, records_in
from conformance.faults.bodies import (
    has_turn,
    is_creating,
    is_fiftieth,
    is_record,
    read_answered,
    requests_in,
)
from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_answers,
    fault_of_records,
    fault_of_responses,
    json_of,
    records_of,
)
from engine import Request, Response
from engine.messages import Json


def masks_in(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the masked objects of a card's record, none of another's."""
    views = (record.get(name) for name in ("mask", "data"))
    return [view for view in views if isinstance(view, dict) and record["type"] == "card"]


def change_metadata(record: dict[str, Any], change: Callable[[str], str]) -> None:
    """Change the values of a record's metadata, where it has any."""
    if isinstance(record.get("metadata"), dict):
        record["metadata"] = {key: change(value) for key, value in record["metadata"].items()}


def change_time(record: dict[str, Any], change: Callable[[dt.datetime], dt.datetime]) -> None:
    """Change the time of creation that a record shows."""
    record["created_at"] = change(dt.datetime.fromisoformat(record["created_at"])).isoformat()


def asked_and_given(
    request: Request, response: Response
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each token request object of an accepted request with its record."""
    if not is_creating(request) or not response.ok:
        return []
    return list(zip(requests_in(json_of(request)), records_in(response.body), strict=False))


@fault_of_records("id-not-uuid", "REC-ID")
def _id_not_uuid(record: dict[str, Any]) -> None:
    """A record's `id` has a prefix before the UUID."""
    record["id"] = f"tok_{record['id']}"


@fault_of_records("id-without-hyphens", "REC-ID")
def _id_without_hyphens(record: dict[str, Any]) -> None:
    """A record's `id` is written without its hyphens."""
    record["id"] = record["id"].replace("-", "")


@fault_of_records("tenant-by-name", "REC-TENANT")
def _tenant_by_name(record: dict[str, Any]) -> None:
    """`tenant_id` is the tenant's name."""
    record["tenant_id"] = "acme"


@fault_of_responses("tenant-of-its-own", "REC-TENANT")
def _tenant_of_its_own(engine: FaultyEngine, _: Request, response: Response) -> None:
    """`tenant_id` is a different UUID in each record."""
    for record in records_of(response):
        record["tenant_id"] = engine.services.new_id()


@fault_of_records("type-capitalised", "REC-TYPE")
def _type_capitalised(record: dict[str, Any]) -> None:
    """`type` comes back with a capital."""
    record["type"] = str(record["type"]).capitalize()


@fault_of_records("mask-last-four-first", "REC-CARD-MASK")
def _mask_last_four_first(record: dict[str, Any]) -> None:
    """The mask shows the last four digits at its start and hides the rest."""
    for mask in masks_in(record):
        number = mask["number"]
        mask["number"] = number[-4:] + "X" * (len(number) - 4)


@fault_of_records("mask-fixed-length", "REC-CARD-MASK")
def _mask_fixed_length(record: dict[str, Any]) -> None:
    """The mask has sixteen characters, however long the number is."""
    for mask in masks_in(record):
        mask["number"] = "X" * 12 + mask["number"][-4:]


@fault_of_records("mask-with-stars", "REC-CARD-MASK")
def _mask_with_stars(record: dict[str, Any]) -> None:
    """The mask is made of asterisks."""
    for mask in masks_in(record):
        mask["number"] = mask["number"].replace("X", "*")


@fault_of_records("mask-brand", "REC-CARD-MASK")
def _mask_brand(record: dict[str, Any]) -> None:
    """The masked object also names the card's brand."""
    for mask in masks_in(record):
        mask["brand"] = "visa"


@fault_of_records("mask-month-as-text", "REC-CARD-MASK")
def _mask_month_as_text(record: dict[str, Any]) -> None:
    """The masked object holds the month as a string."""
    for mask in masks_in(record):
        if "expiration_month" in mask:
            mask["expiration_month"] = f"{mask['expiration_month']:02d}"


@fault_of_records("token-shows-data", "REC-TOKEN-DATA")
def _token_shows_data(record: dict[str, Any]) -> None:
    """A `token` record has `data`, made of X."""
    if record["type"] == "token":
        record["data"] = "XXXX"


@fault_of_records("token-data-null", "REC-TOKEN-DATA")
def _token_data_null(record: dict[str, Any]) -> None:
    """A `token` record has `data`, which is null."""
    if record["type"] == "token":
        record["data"] = None


@fault_of_records("metadata-dropped", "REC-METADATA")
def _metadata_dropped(record: dict[str, Any]) -> None:
    """`metadata` never comes back."""
    record.pop("metadata", None)


@fault_of_records("metadata-always", "REC-METADATA")
def _metadata_always(record: dict[str, Any]) -> None:
    """A record without metadata shows an empty object, unless it is deduplicated."""
    if not record["_extras"]["deduplicated"]:
        record.setdefault("metadata", {})


@fault_of_records("metadata-keys-lower-cased", "REC-METADATA")
def _metadata_keys(record: dict[str, Any]) -> None:
    """The keys of `metadata` come back in lower case."""
    if isinstance(record.get("metadata"), dict):
        record["metadata"] = {key.lower(): value for key, value in record["metadata"].items()}


@fault_of_records("metadata-values-composed", "REC-METADATA")
def _metadata_values_composed(record: dict[str, Any]) -> None:
    """The values of `metadata` come back in Unicode's composed form (NFC)."""
    change_metadata(record, lambda text: unicodedata.normalize("NFC", text))


@fault_of_records("indexes-reordered", "REC-INDEXES")
def _indexes_reordered(record: dict[str, Any]) -> None:
    """`search_indexes` comes back in the opposite order."""
    if isinstance(record.get("search_indexes"), list):
        record["search_indexes"] = record["search_indexes"][::-1]


@fault_of_records("indexes-hidden", "REC-INDEXES")
def _indexes_hidden(record: dict[str, Any]) -> None:
    """`search_indexes` never comes back."""
    record.pop("search_indexes", None)


@fault_of_responses("fingerprint-random", "REC-FINGERPRINT")
def _fingerprint_random(engine: FaultyEngine, _: Request, response: Response) -> None:
    """Equal cards have different fingerprints."""
    for record in records_of(response):
        if "fingerprint" in record:
            record["fingerprint"] = engine.services.new_id()


@fault_of_records("fingerprint-of-last-four", "REC-FINGERPRINT")
def _fingerprint_of_last_four(record: dict[str, Any]) -> None:
    """Cards that end in the same digit have the same fingerprint."""
    for mask in masks_in(record):
        record["fingerprint"] = f"fp{mask['number'][-1]}"


@fault_of_responses("fingerprint-is-the-value", "REC-FINGERPRINT")
def _fingerprint_is_value(_: FaultyEngine, request: Request, response: Response) -> None:
    """The fingerprint of a `token` with an expression and no metadata is its value."""
    for asked, record in asked_and_given(request, response):
        if (
            asked["type"] == "token"
            and "metadata" not in asked
            and {"data", "fingerprint_expression"} <= asked.keys()
        ):
            record["fingerprint"] = asked["data"]


@fault_of_records("expression-of-whole-card", "REC-FPEXPR")
def _expression_of_whole_card(record: dict[str, Any]) -> None:
    """A card with no expression supplied shows `{{ data }}`."""
    if record.get("fingerprint_expression") == "{{ data.number }}":
        record["fingerprint_expression"] = "{{ data }}"


@fault_of_records("expression-hidden", "REC-FPEXPR")
def _expression_hidden(record: dict[str, Any]) -> None:
    """`fingerprint_expression` is not shown."""
    record.pop("fingerprint_expression", None)


@fault_of_records("naive-timestamp", "REC-CREATED")
def _naive_timestamp(record: dict[str, Any]) -> None:
    """`created_at` has no UTC offset."""
    record["created_at"] = record["created_at"].replace("+00:00", "")


@fault_of_records("timestamp-in-seconds", "REC-CREATED")
def _timestamp_in_seconds(record: dict[str, Any]) -> None:
    """`created_at` is a number of seconds."""
    moment = dt.datetime.fromisoformat(record["created_at"])
    record["created_at"] = int(moment.timestamp())


@fault_of_records("created-an-hour-early", "REC-CREATED")
def _created_an_hour_early(record: dict[str, Any]) -> None:
    """`created_at` is an hour before the token was created."""
    change_time(record, lambda moment: moment - dt.timedelta(hours=1))


@fault_of_records("created-tomorrow", "REC-CREATED")
def _created_tomorrow(record: dict[str, Any]) -> None:
    """`created_at` lies a day ahead."""
    change_time(record, lambda moment: moment + dt.timedelta(days=1))


@fault_of_records("created-with-another-offset", "REC-CREATED")
def _created_with_another_offset(record: dict[str, Any]) -> None:
    """`created_at` has the digits of UTC and the offset +02:00."""
    offset = dt.timezone(dt.timedelta(hours=2))
    change_time(record, lambda moment: moment.replace(tzinfo=offset))


@fault_of_records("created-at-the-epoch", "REC-CREATED")
def _created_at_the_epoch(record: dict[str, Any]) -> None:
    """`created_at` is 1970 for every token."""
    record["created_at"] = "1970-01-01T00:00:00+00:00"


@fault_of_responses("created-by-key-kind", "REC-CREATED")
def _created_by_key_kind(engine: FaultyEngine, request: Request, response: Response) -> None:
    """`created_by` is the kind of the application, not its UUID."""
    caller = engine.identify(request)
    for record in records_of(response):
        if "created_by" in record and caller is not None:
            record["created_by"] = caller.application.kind


@fault_of_records("extras-when-found-only", "REC-EXTRAS")
def _extras_when_found_only(record: dict[str, Any]) -> None:
    """`_extras` is left out where nothing was deduplicated."""
    if not record["_extras"]["deduplicated"]:
        del record["_extras"]


@fault_of_records("extras-as-text", "REC-EXTRAS")
def _extras_as_text(record: dict[str, Any]) -> None:
    """`_extras.deduplicated` is a string."""
    record["_extras"]["deduplicated"] = str(record["_extras"]["deduplicated"]).lower()


@fault_of_responses("default-container-alternates", "TOK-CONTAINER")
def _default_alternates(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Records of tokens that name no container show /a/ and /b/ in turn."""
    for asked, record in asked_and_given(request, response):
        if "containers" not in asked:
            turn = engine.notes["turn"] = "/b/" if engine.notes.get("turn") == "/a/" else "/a/"
            record["containers"] = [turn]


@fault("redaction-wrong-way", "REC-DEDUP-REDACT")
async def _redaction_wrong_way(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A key with token:read gets the redacted record; a key without it gets the whole record."""
    return await read_answered(engine, request, submit, lambda held: not held)


@fault_of_responses("metadata-not-redacted", "REC-DEDUP-REDACT")
def _metadata_not_redacted(engine: FaultyEngine, _: Request, response: Response) -> None:
    """A redacted record still shows the stored metadata."""
    store = engine.services.store
    for record in records_of(response):
        if record["_extras"]["deduplicated"]:
            with store.transaction(write=False):
                token = store.token(record["tenant_id"], record["id"])
            if token is not None and token.metadata is not None:
                record["metadata"] = dict(token.metadata)


@fault_of_records("data-not-redacted", "REC-DEDUP-REDACT")
def _data_not_redacted(record: dict[str, Any]) -> None:
    """A redacted card record still shows the masked object as `data`."""
    if record["_extras"]["deduplicated"] and "mask" in record:
        record["data"] = dict(record["mask"])


def _secrets(request: Request) -> list[str]:
    secrets = []
    for element in elements_in(json_of(request)) if is_creating(request) else ():
        data = element.get("data") if isinstance(element, dict) else element
        if isinstance(data, dict):
            secrets += [data[name] for name in ("number", "cvc") if isinstance(data.get(name), str)]
        elif isinstance(data, str):
            secrets.append(data)
    return secrets


@fault_of_responses("secret-in-header", "REC-SECRET")
def _secret_in_header(_: FaultyEngine, request: Request, response: Response) -> None:
    """A header of the answer holds the first value that was sent."""
    printable = [
        secret for secret in _secrets(request) if secret.isascii() and secret.isprintable()
    ]
    if response.ok and printable:
        response.headers["X-Trace"] = f"value={printable[0]}"


@fault_of_responses("location-shows-value", "REC-SECRET")
def _location_shows_value(_: FaultyEngine, request: Request, response: Response) -> None:
    """The `Location` of POST /tokens holds the value; no other operation shows any."""
    body = json_of(request)
    if request.method == "POST" and request.path == "/tokens" and response.ok:
        data = body.get("data") if isinstance(body, dict) else None
        if isinstance(data, str) and data.isascii() and data.isprintable():
            response.headers["Location"] = f"/tokens?value={data}"


@fault_of_responses("refused-read-shows-value", "REC-SECRET")
def _refused_read(engine: FaultyEngine, request: Request, response: Response) -> None:
    """A refused read of a token says its value."""
    body, token_id = json_of(request), request.path.rpartition("/")[2]
    if is_creating(request) and response.ok and isinstance(body, dict) and is_record(response.body):
        engine.notes[response.body["id"]] = str(body.get("data"))
    elif request.method == "GET" and not response.ok and token_id in engine.notes:
        response.body["detail"] += f" Its data is {engine.notes[token_id]}."


@fault_of_responses("cvc-shown", "REC-SECRET")
def _cvc_shown(_: FaultyEngine, request: Request, response: Response) -> None:
    """A card's record holds its cvc in `_extras`."""
    for asked, record in asked_and_given(request, response):
        if isinstance(asked.get("data"), dict) and "cvc" in asked["data"]:
            record["_extras"]["cvc"] = asked["data"]["cvc"]


@fault_of_responses("tenant-of-the-first", "REC-TENANT")
def _tenant_of_the_first(engine: FaultyEngine, _: Request, response: Response) -> None:
    """`tenant_id` is always that of the first tenant that sent a request."""
    for record in records_of(response):
        record["tenant_id"] = engine.notes.setdefault("tenant", record["tenant_id"])


@fault_of_records("created-by-the-tenant", "REC-CREATED")
def _created_by_the_tenant(record: dict[str, Any]) -> None:
    """`created_by` is the id of the tenant instead of the application."""
    record["created_by"] = record["tenant_id"]


@fault_of_records("created-in-local-time", "REC-CREATED")
def _created_in_local_time(record: dict[str, Any]) -> None:
    """`created_at` is the local time of a place two hours ahead, labelled as UTC."""
    change_time(record, lambda moment: moment + dt.timedelta(hours=2))


@fault_of_records("created-at-noon", "REC-CREATED")
def _created_at_noon(record: dict[str, Any]) -> None:
    """`created_at` is the noon of the day of creation."""
    change_time(record, lambda made: made.replace(hour=12, minute=0, second=0, microsecond=0))


@fault_of_records("type-always-token", "REC-TYPE")
def _type_always_token(record: dict[str, Any]) -> None:
    """A card's record says `token`."""
    record["type"] = "token"


@fault_of_records("id-in-braces", "REC-ID")
def _id_in_braces(record: dict[str, Any]) -> None:
    """A record's `id` is enclosed in braces."""
    record["id"] = f"{{{record['id']}}}"


@fault_of_answers("one-id-a-request", "REC-ID")
def _one_id_a_request(_: Json, answer: Json) -> Json:
    """All records of a request have one identifier."""
    records = list(records_in(answer))
    for record in records[1:]:
        record["id"] = records[0]["id"]
    return answer


@fault_of_answers("extras-missing-in-arrays", "REC-EXTRAS")
def _extras_missing(body: Json, answer: Json) -> Json:
    """Records in an array have no `_extras`."""
    for record in list(records_in(answer)) if isinstance(body, list) else ():
        del record["_extras"]
    return answer


@fault_of_records("mask-lower-case", "REC-CARD-MASK")
def _mask_lower_case(record: dict[str, Any]) -> None:
    """The mask is in lower case."""
    for mask in masks_in(record):
        mask["number"] = mask["number"].lower()


@fault_of_records("mask-without-year", "REC-CARD-MASK")
def _mask_without_year(record: dict[str, Any]) -> None:
    """The masked object lacks the year."""
    for mask in masks_in(record):
        mask.pop("expiration_year", None)


@fault_of_records("mask-year-of-two-digits", "REC-CARD-MASK")
def _mask_year_short(record: dict[str, Any]) -> None:
    """The masked object holds the last two digits of the year."""
    for mask in masks_in(record):
        if "expiration_year" in mask:
            mask["expiration_year"] %= 100


@fault_of_records("mask-shows-cvc-length", "REC-CARD-MASK")
def _mask_shows_cvc(record: dict[str, Any]) -> None:
    """The masked object holds a masked cvc too."""
    for mask in masks_in(record):
        mask["cvc"] = "X" * 3


@fault_of_responses("mask-shows-six", "REC-CARD-MASK")
def _mask_shows_six(_: FaultyEngine, request: Request, response: Response) -> None:
    """The mask of a card shows its first six digits too."""
    for asked, record in asked_and_given(request, response):
        for mask in masks_in(record) if "data" in asked else ():
            mask["number"] = asked["data"]["number"][:6] + mask["number"][6:]


@fault_of_records("card-metadata-lost", "REC-METADATA")
def _card_metadata_lost(record: dict[str, Any]) -> None:
    """A card's metadata never comes back."""
    if record["type"] == "card":
        record.pop("metadata", None)


@fault_of_records("metadata-values-cut", "REC-METADATA")
def _metadata_values_cut(record: dict[str, Any]) -> None:
    """Metadata values come back with 100 characters at most."""
    change_metadata(record, lambda text: text[:100])


@fault_of_records("metadata-entities", "REC-METADATA")
def _metadata_entities(record: dict[str, Any]) -> None:
    """Quotation marks in metadata values come back as HTML entities."""
    change_metadata(record, lambda text: text.replace('"', "&quot;"))


@fault_of_records("first-index-only", "REC-INDEXES")
def _first_index_only(record: dict[str, Any]) -> None:
    """Only the first of several search indexes comes back."""
    if isinstance(record.get("search_indexes"), list):
        record["search_indexes"] = record["search_indexes"][:1]


@fault_of_records("fingerprint-of-all-fields", "REC-FINGERPRINT")
def _fingerprint_of_all(record: dict[str, Any]) -> None:
    """A card's fingerprint changes with its expiry."""
    mask = record.get("mask") or record.get("data")
    if isinstance(mask, dict) and "fingerprint" in record:
        record["fingerprint"] += f"-{mask.get('expiration_year')}"


@fault_of_records("fingerprint-of-the-type", "REC-FINGERPRINT")
def _fingerprint_of_type(record: dict[str, Any]) -> None:
    """All tokens of a type have one fingerprint."""
    if "fingerprint" in record:
        record["fingerprint"] = f"fp-{record['type']}"


@fault_of_responses("redacts-cards-only", "REC-DEDUP-REDACT")
def _redacts_cards_only(_: FaultyEngine, request: Request, response: Response) -> None:
    """A redacted record of a `token` still shows the metadata that was sent."""
    for asked, record in asked_and_given(request, response):
        is_found = record["_extras"]["deduplicated"] and record["type"] == "token"
        if is_found and isinstance(asked.get("metadata"), dict):
            record.setdefault("metadata", asked["metadata"])


@fault_of_responses("sporadic-identifier", "REC-ID")
def _sporadic_identifier(engine: FaultyEngine, request: Request, response: Response) -> None:
    """One in fifty records has an `id` that is no UUID."""
    is_turn = is_request(json_of(request)) and has_turn(engine, request)
    for record in records_of(response) if is_turn else ():
        record["id"] = "pending"


@fault_of_responses("sporadic-without-extras", "REC-EXTRAS")
def _sporadic_no_extras(engine: FaultyEngine, _: Request, response: Response) -> None:
    """Every fiftieth record has no `_extras`."""
    for record in records_of(response):
        if is_fiftieth(engine, "record"):
            del record["_extras"]


@fault_of_responses("sporadic-mask", "REC-CARD-MASK")
def _sporadic_mask(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Every fiftieth card's mask shows five digits."""
    for asked, record in asked_and_given(request, response):
        is_sent = isinstance(asked.get("data"), dict) and record["type"] == "card"
        if is_sent and is_fiftieth(engine, "card"):
            for mask in masks_in(record):
                mask["number"] = mask["number"][:-5] + asked["data"]["number"][-5:]
