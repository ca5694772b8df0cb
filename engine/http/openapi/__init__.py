"""OpenAPI 3.1 documents, generated from the registry of operations for a given profile."""

from typing import Any

from engine.profile import Profile

__all__ = ["document"]


def document(kind: str, profile: Profile) -> dict[str, Any]:
    """Return the document of a kind; its key header is the profile's."""
    header = {"type": "apiKey", "in": "header", "name": profile.http.key_header}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Tollgate, {kind}", "version": "0.1.0"},
        "paths": {},
        "components": {"securitySchemes": {"apiKey": header}},
    }
