"""The Python package that a page shows, installed without touching any environment."""

from __future__ import annotations

import tomllib
from pathlib import Path


def install(package: Path) -> Path:
    """What `pip install ./package` leaves for Python: the modules, and their entry points."""
    data = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = package / f"{data['name'].replace('-', '_')}-{data['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {data['name']}\nVersion: {data['version']}\n")
    lines = []
    for group, entries in data["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return package
