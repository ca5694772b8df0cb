"""OpenAPI 3.1 documents, generated from the registry of operations for a profile.

`document(kind, profile)` takes a kind `full`, `floor` or `ceiling`. `documents` builds the
documents and the schemas of answers, `schemas` the schemas of request bodies and the table of what
each operation answers, and `hooks` adapts schemathesis to the documents.
"""

from engine.http.openapi.documents import KINDS, document

__all__ = ["KINDS", "document"]
