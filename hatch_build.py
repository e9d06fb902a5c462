"""Build hook: puts the web console into a wheel or sdist, where Node is there to build it.

`HERMES_AGUI_WEB=0` leaves it as it is, built or not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface):  # type: ignore[type-arg]
    """`npm ci && npm run build` in web/. What is built already is taken as it is where npm is missing."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        if version == "editable" or os.environ.get("HERMES_AGUI_WEB") == "0":
            return  # a checkout builds it by `make web`
        root = Path(self.root)
        source, built = root / "web", root / "agui_adapter" / "web" / "index.html"
        npm = shutil.which("npm")
        if npm is not None and (source / "package-lock.json").is_file():
            subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=source, check=True)
            subprocess.run([npm, "run", "build"], cwd=source, check=True)
        elif not built.is_file():
            self.app.display_warning("npm is missing: this build has no web console; / will say so")
