"""The build hook: source distribution and wheel hold the clause index of the checkout.

A wheel is built from a source distribution, which has no tests and no notebooks: there the index
that the source distribution holds is taken over.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ClauseIndexHook(BuildHookInterface[Any]):
    """Writes `engine/clause_index.json` into what is built; the checkout stays as it is."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the index to the files of a build; an editable install scans its checkout."""
        root = Path(self.root)
        sys.path.insert(0, str(root))
        from engine.clauses import (  # noqa: PLC0415 # reason: on the path from here on
            INDEX_FILE,
            is_checkout,
            scan,
        )

        if version == "editable" or not is_checkout(root):
            return
        made = Path(self.directory) / INDEX_FILE
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(scan(root), indent=1) + "\n", encoding="utf-8")
        build_data["force_include"][str(made)] = f"engine/{INDEX_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the index that was made for the build, and nothing else that it took."""
        del version, build_data, artifact_path
        (Path(self.directory) / "clause_index.json").unlink(missing_ok=True)
