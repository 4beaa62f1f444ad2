"""Why an artifact has to be built: found when it is decided, kept as data in its manifest.

An artifact's predecessor is the build under the same name that differs least in arch, toolchain,
variant and parameters. What differs between the two in what goes into the key is the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from kernloom.build.artifact import ENVIRONMENT, ORIGINS, Artifact
from kernloom.build.manifest import read_manifest
from kernloom.files import sha256_text

Kind = Literal[
    "new", "source", "flag", "header", "compiler", "parameter", "corrupt", "deleted", "kept"
]
_LOOK_BACK = 200
"""How many of the newest entries are compared when none fits exactly."""


@dataclass(frozen=True)
class Explanation:
    """Why an artifact is built, or why it need not be."""

    kind: Kind
    text: str
    details: tuple[Mapping[str, Any], ...] = ()
    """One entry per difference: its kind, its text and what it is made of."""


@dataclass(frozen=True)
class Entry:
    """One line of the index: a build under a name."""

    key: str
    kind: str
    slot: Mapping[str, str]
    """arch, toolchain, variant and each parameter."""


def to_plain(explanation: Explanation) -> dict[str, Any]:
    return asdict(explanation)


def slot_of(artifact: Artifact) -> dict[str, str]:
    return _slot(artifact.arch, artifact.identity.toolchain, artifact.variant, artifact.params)


def _slot(arch: str, toolchain: str, variant: str, params: Mapping[str, Any]) -> dict[str, str]:
    named = {"arch": arch, "toolchain": toolchain, "variant": variant}
    return named | {f"params.{name}": value for name, value in _flat(params)}


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, json.dumps(value)


class Index:
    """The builds known under each name, oldest first: build/index/NAME.jsonl."""

    def __init__(self, build: Path) -> None:
        self.folder = build / "index"
        self._read: dict[str, tuple[tuple[int, int], list[Entry]]] = {}

    def path(self, name: str) -> Path:
        return self.folder / f"{quote(name, safe='')}.jsonl"

    def append(self, artifact: Artifact, created: str) -> None:
        line = {
            "key": artifact.key,
            "kind": artifact.kind,
            "arch": artifact.arch,
            "toolchain": artifact.identity.toolchain,
            "variant": artifact.variant,
            "params": artifact.params,
            "created": created,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path(artifact.name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def entries(self, name: str) -> list[Entry]:
        path = self.path(name)
        try:
            status = path.stat()
        except OSError:
            return []
        stamp = (status.st_mtime_ns, status.st_size)
        if name not in self._read or self._read[name][0] != stamp:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            self._read[name] = (stamp, [entry for entry in map(_entry, lines) if entry])
        return self._read[name][1]

    def predecessors(self, artifact: Artifact) -> list[Entry]:
        """Older builds under the same name, the one most like it first, then the newest."""
        slot = slot_of(artifact)
        newest_first = self.entries(artifact.name)[::-1]
        exact = [entry for entry in newest_first if entry.slot == slot]
        others = [entry for entry in newest_first[:_LOOK_BACK] if entry.slot != slot]
        others.sort(key=lambda entry: _distance(entry.slot, slot))
        return exact + others


def _entry(line: str) -> Entry | None:
    """An entry of the index; None for a line that was cut short."""
    try:
        data = json.loads(line)
        slot = _slot(data["arch"], data["toolchain"], data["variant"], data["params"])
        return Entry(data["key"], data["kind"], slot)
    except (ValueError, KeyError, TypeError):
        return None


def _distance(a: Mapping[str, str], b: Mapping[str, str]) -> int:
    return sum(a.get(name) != b.get(name) for name in a.keys() | b.keys())


def explain(artifact: Artifact, build: Path, index: Index, problem: str) -> Explanation:
    """Why `artifact`, which is not whole on disk, has to be built."""
    if problem:
        return Explanation("corrupt", f"the built file was damaged: {problem}")
    candidates = index.predecessors(artifact)
    if any(entry.key == artifact.key for entry in candidates):
        return Explanation("deleted", "it was built before, but its folder is gone")
    for entry in candidates:
        folder = artifact.folder(build).parent / entry.key
        manifest = read_manifest(folder) if entry.kind == artifact.kind else None
        if manifest is not None:
            details = tuple(_differences(artifact, folder, manifest))
            if details:
                text = "; ".join(detail["text"] for detail in details)
                return Explanation(details[0]["kind"], text, details)
    gone = "; what was built before under this name is gone" if candidates else ""
    return Explanation("new", f"nothing was built under this name before{gone}")


def _differences(
    artifact: Artifact, folder: Path, old: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """What differs, most telling first: a changed parameter comes before the source it changed."""
    parameters = list(_changed_parameters(artifact, old))
    origins = list(_changed_texts(artifact.origins, old.get("origins", {}), folder / ORIGINS))
    files = list(_changed_texts(artifact.files, old.get("inputs", {}), folder))
    if not files:
        parameters, origins = [], []
    yield from _changed_compiler(artifact, old)
    yield from parameters
    if origins:
        rendered = [one for one in files if not one["file"].endswith(".h")][:1]
        for one in origins:
            shown = f" (rendered: {rendered[0]['text']})" if rendered else ""
            yield {**one, "kind": "source", "text": one["text"] + shown, "rendered": rendered}
    for one in files:
        header = one["file"].endswith(".h")
        if header or not (origins or parameters):
            yield {**one, "kind": "header" if header else "source"}
    yield from _changed_headers(artifact, old)
    yield from _changed_flags(artifact, old)


def _changed_compiler(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, now = old.get("toolchain", {}), artifact.identity
    if before.get("digest") == now.digest:
        return
    parts = before.get("parts", {})
    changed = sorted(
        part for part in parts.keys() | now.parts.keys() if parts.get(part) != now.parts.get(part)
    )
    was = f"{before.get('toolchain')} {before.get('version')} ({before.get('triple')})"
    is_now = f"{now.toolchain} {now.version} ({now.triple})"
    text = f"compiler: {was} -> {is_now}" if was != is_now else f"compiler: {was} was replaced"
    if was == is_now and changed:
        text += f" ({', '.join(changed)} changed)"
    yield {"kind": "compiler", "text": text, "old": was, "new": is_now, "parts": changed}


def _changed_parameters(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, now = dict(_flat(old.get("params", {}))), dict(_flat(artifact.params))
    for name in sorted(before.keys() | now.keys()):
        a, b = before.get(name, "(absent)"), now.get(name, "(absent)")
        if a != b:
            text = f"parameter {name}: {a} -> {b}"
            yield {"kind": "parameter", "text": text, "name": name, "old": a, "new": b}


def _changed_flags(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, now = list(old.get("argv", ())), list(artifact.argv)
    if before != now:
        removed = [part for part in before if part not in now and part not in artifact.files]
        added = [part for part in now if part not in before and part not in artifact.files]
        said = _plus_minus(removed, added) or "same flags, another order or number"
        context = [
            f"{name} {was} -> {is_now}"
            for name, was, is_now in (
                ("arch", old.get("arch"), artifact.arch),
                ("variant", old.get("variant"), artifact.variant),
            )
            if was != is_now and (removed or added)
        ]
        where = f" ({', '.join(context)})" if context else ""
        yield {"kind": "flag", "text": f"flags: {said}{where}", "removed": removed, "added": added}
    if old.get("environment") != dict(ENVIRONMENT):
        yield {"kind": "flag", "text": "the compiler's environment changed"}


def _plus_minus(removed: Sequence[str], added: Sequence[str]) -> str:
    return " ".join([*(f"-[{part}]" for part in removed), *(f"+[{part}]" for part in added)])


def _changed_headers(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, now = old.get("headers", {}), artifact.headers
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            how = "changed" if name in before and name in now else "added"
            how = "no longer included" if name not in now else how
            yield {"kind": "header", "text": f"system header <{name}>: {how}", "file": name}


def _changed_texts(
    now: Mapping[str, str], before: Mapping[str, str], folder: Path
) -> Iterator[dict[str, Any]]:
    """Files whose text differs from the one kept in `folder`, with the first line that does."""
    for path in sorted(now.keys() | before.keys()):
        if path not in now:
            yield {"file": path, "line": 0, "text": f"{path}: no longer used"}
        elif path not in before:
            yield {"file": path, "line": 0, "text": f"{path}: added"}
        elif sha256_text(now[path]) != before[path]:
            try:
                old_text = (folder / path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                yield {"file": path, "line": 0, "text": f"{path}: changed"}
                continue
            yield _first_change(path, old_text.splitlines(), now[path].splitlines())


def _first_change(path: str, old: list[str], new: list[str]) -> dict[str, Any]:
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    gone, came = old[start : len(old) - end], new[start : len(new) - end]
    was, is_now = (gone[0].strip() if gone else None), (came[0].strip() if came else None)
    if was is None:
        said = f"added '{is_now}'" if came else "white space at the end"
    else:
        said = f"'{was}' -> '{is_now}'" if came else f"removed '{was}'"
    more = max(len(gone), len(came)) - 1
    tail = f" and up to {more} more lines" if more > 0 else ""
    return {
        "file": path,
        "line": start + 1,
        "old": was,
        "new": is_now,
        "text": f"{path}:{start + 1}: {said}{tail}",
    }
