"""The target: what the operator says of a deployment under test.

`target.toml` is the contract (shared with `python -m engine serve --write-target`). Secrets come
from `${ENV}`; whatever the file holds of them is shown nowhere, and curl lines name the same
variables. What the target does not say is discovered, or what it would show stays *skipped* with
the line that would change that. `python -m conformance init` writes a file to fill in, and
`python -m conformance check` says what a file allows to be judged before anything is sent.

## A deployment that speaks otherwise

The specification gives shapes for `POST /tokenize` alone. The rest is assumed, and the target says
where a deployment differs:

```toml
key_header = "Authorization"              # the header of the API key …
key_format = "Bearer {key}"               # … and what it holds
proxy_key_header = "X-Proxy"              # a proxy is named by a header,
proxy_host = "{proxy_key}.example.com"    # by a host, or by the path of [requests.invoke_proxy]
containers = ["main", "cards"]            # containers by their own names, paths or not
default_containers = { token = "main", card = "cards" }
always = ["deduplication"]                # switched on for good, on every tenant

[fields]                                  # a field's name in the specification = its name here
containers = "vault"
_extras = "meta"

[errors]                                  # only where errors come with a 2xx:
at = "error"                              # what only an error's body holds,
status = "error.code"                     # and where its status stands (400 without it)

[requests.search]                         # an operation, by its name in the engine
method = "POST"
path = "/find"                            # may hold {id}; of a proxy {proxy_key} and {path}
body = { q = "data:{value}" }
answer = { data = "{results}", pagination = { next = "{cursor.next}" } }
success = [200, 206]                      # only where not every 2xx is a success
limit = "20/10s"                          # a limit of its own, besides the specification's
```

`answer` is the answer as the engine gives it; a text `{a.b}` is what stands at `a.b` in the
deployment's own, `{}` the whole of it. A container whose name is no path appears in reports as one:
`main` as `/main/`. What the specification fixes is not excused: 429 and 408 are statuses, not words
in a body.

`limit` tells what an operation's own limit does to the row that is probed with it. Where it is
tighter than the row, the row cannot be seen with it: its clause is skipped, with the reason. Where
it is wider, nothing changes. Either way no other check asks faster than it.

## Roles

Each `[[keys]]` has a role: what its key is for. Only `private_prod` is needed to begin with. Limits
use keys up, since a key that has met one limit is warm for the next: eight keys of each role marked
*(several)*, and twelve addresses or more, show everything in one round.

"""

from conformance.target.dialect import Dialect, ErrorShape
from conformance.target.form import (
    ALWAYS,
    Budget,
    Grant,
    RequestShape,
    Source,
    Target,
    TargetKey,
    TargetTenant,
    Tls,
)
from conformance.target.roles import ROLES, Role, roles_table

__doc__ = (__doc__ or "") + roles_table()

__all__ = [
    "ALWAYS",
    "ROLES",
    "Budget",
    "Dialect",
    "ErrorShape",
    "Grant",
    "RequestShape",
    "Role",
    "Source",
    "Target",
    "TargetKey",
    "TargetTenant",
    "Tls",
    "roles_table",
]
