"""The target: what the operator says about a deployment under test.

`target.toml` is the contract (shared with `python -m engine serve --write-target`). Secrets come
from `${ENV}`; whatever the file holds of them is shown nowhere, and curl lines name the same
variables. What the target does not say is discovered; where that is not possible, the checks that
need it are *skipped*, with the line to add. `python -m conformance init` writes a file to fill in.
`python -m conformance check` lists which clauses a file allows to judge; it sends nothing.

## A deployment with names of its own

The specification gives shapes for `POST /tokenize` alone. The rest is assumed, and the target says
where a deployment differs:

```toml
key_header = "Authorization"              # the header of the API key …
key_format = "Bearer {key}"               # … and what it holds
proxy_key_header = "X-Proxy"              # a proxy is named by a header,
proxy_host = "{proxy_key}.example.com"    # by a host, or by the path of [requests.invoke_proxy]
containers = ["main", "cards"]            # containers by their own names, paths or not
default_containers = { token = "main", card = "cards" }
always = ["deduplication"]                # always on, for every tenant

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

`answer` describes the answer of the engine. In it, the text `{a.b}` stands for the value at `a.b`
in the deployment's answer, and `{}` for the whole answer. A container whose name is not a path
appears in reports as one: `main` as `/main/`. What the specification fixes cannot be mapped: 429
and 408 must be HTTP statuses, not values in a body.

`limit` names a limit that an operation has besides those of the specification. Where it is tighter
than the row that is probed with the operation, the row cannot be seen: its clause is skipped, with
the reason. Where it is wider, the row is probed as usual. All other checks stay below it.

## Roles

Each `[[keys]]` has a role, which says what its key is for. Only `private_prod` is needed to begin
with. A probe uses up its keys: a limit that one probe has reached would disturb the next. With
eight keys of each role marked *(several)* and twelve addresses or more, one round shows everything.

"""

from conformance.messages.shapes import RequestShape
from conformance.target.dialect import Dialect, ErrorShape
from conformance.target.form import (
    Budget,
    Grant,
    Source,
    Target,
    TargetKey,
    TargetTenant,
    Tls,
)
from conformance.target.roles import ROLES, Role, roles_table

__doc__ = (__doc__ or "") + roles_table()

__all__ = [
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
