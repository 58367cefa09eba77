"""A bill of materials (CycloneDX, JSON) of what is in a frozen folder, made by CycloneDX's own tool for Python."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOOL = "cyclonedx_py"


def available() -> bool:
    """Whether the tool is installed beside the build's other tools."""
    return importlib.util.find_spec(TOOL) is not None


def write_sbom(file: Path, names: Iterable[str], version: str) -> None:
    """Describe the environment that the build is made in, then keep what went into it: ``names``, as in the list of
    third parties. Raises subprocess.CalledProcessError when the tool fails.
    """
    command = [sys.executable, "-m", TOOL, "environment", "--output-reproducible", "--of", "JSON", "-o", str(file)]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application", sys.executable]
    subprocess.run(command, check=True, capture_output=True, text=True)
    bill = reduced(json.loads(file.read_text("utf-8")), names, version)
    file.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def reduced(bill: dict[str, Any], names: Iterable[str], version: str) -> dict[str, Any]:
    """``bill`` without the components that are not in ``names``, and without what refers to them."""
    wanted = {_plain(name) for name in names}
    kept = [part for part in bill.get("components", []) if _plain(part["name"]) in wanted]
    main = bill["metadata"]["component"]
    main["version"] = version  # the tool reads none where the project's is dynamic
    known = {part["bom-ref"] for part in kept} | {main["bom-ref"]}
    links = [
        {**link, "dependsOn": [ref for ref in link.get("dependsOn", []) if ref in known]}
        for link in bill.get("dependencies", [])
        if link["ref"] in known
    ]
    return {**bill, "components": kept, "dependencies": links}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
