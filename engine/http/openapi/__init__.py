"""OpenAPI 3.1 documents, generated from the registry of operations for a profile.

`document(kind, profile)` with kind `full`, `floor` or `ceiling`; the schemas stand in `schemas`,
`bodies` and `answers`, what each operation answers and leads to in `shapes`.
"""

from engine.http.openapi.documents import KINDS, document

__all__ = ["KINDS", "document"]
