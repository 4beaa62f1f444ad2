"""Explanations of builds: found when a build is decided, kept as data in the manifest.

An artifact's predecessor is the build under the same name that differs least in arch, toolchain and
its version, variant, parameters, dtype and flags. The differences between the inputs of the two
keys are the reason for the build.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from kernloom.base.files import file_stamp, sha256_text
from kernloom.base.sealed import SEAL, key_of, seal, unseal
from kernloom.build.headers import HAS_INCLUDE
from kernloom.build.manifest import Damaged, Missing, read_manifest
from kernloom.plan.artifact import BARE, ENVIRONMENT, FAILED, FOLDERS, ORIGINS, WRAPPER, Artifact

Kind = Literal[
    "new",
    "source",
    "flag",
    "header",
    "compiler",
    "parameter",
    "corrupt",
    "deleted",
    "failed",
    "kept",
    "fetched",
]
FETCHED: Literal["fetched"] = "fetched"
"""It was fetched from a shared cache."""
_KEY = re.compile(r'"key": "(\w+)"')
FOLDER_FLAGS = ("-I", "-iquote", "-isystem", "-idirafter")
"""Flags for header search folders, attached or as the next word."""
_LOOK_BACK = 200
"""Number of recent entries compared if none matches exactly."""


@dataclass(frozen=True)
class Explanation:
    """Why an artifact is built, or need not be."""

    kind: Kind
    text: str
    details: tuple[Mapping[str, Any], ...] = ()
    """One entry per difference: kind, text and data."""


@dataclass(frozen=True)
class Slot:
    """Description of a build, to find the most similar builds."""

    facts: Mapping[str, str]
    """arch, toolchain, version, variant and each parameter."""
    argv: tuple[str, ...] | None
    """None if not recorded: the index of an older Kernloom has no flags."""

    @property
    def spelled(self) -> tuple[Any, ...]:
        return (*sorted(self.facts.items()), self.argv)

    def additions(self, other: Slot) -> list[str]:
        """Facts and flags that another build did not have: `unroll.factor=2`, `flag -O3`. A
        different version of the same compiler is a change, not a choice."""
        facts = [
            f"{name.removeprefix('params.')}={json.loads(value) if '.' in name else value}"
            for name, value in self.facts.items()
            if other.facts.get(name) != value and name != "version"
        ]
        # A different compiler or arch has flags of its own.
        same = all(self.facts.get(n) == other.facts.get(n) for n in ("toolchain", "arch"))
        if not same or self.argv is None or other.argv is None:
            return facts
        return facts + [f"flag {word}" for word in self.argv if word not in {*other.argv, *BARE}]

    def distance(self, other: Slot) -> int:
        """Number of facts and flags that differ between two builds."""
        names = self.facts.keys() | other.facts.keys()
        facts = sum(self.facts.get(name) != other.facts.get(name) for name in names)
        if self.argv == other.argv:
            return facts
        if self.argv is None or other.argv is None:
            return facts + 1
        return facts + max(1, len(set(self.argv) ^ set(other.argv)))


@dataclass(frozen=True)
class Entry:
    """One line of the index: a build under a name."""

    key: str
    kind: str
    slot: Slot


@dataclass
class NamedBuilds:
    """All builds under one name."""

    stamp: list[int]
    """Stamp of the index file."""
    entries: list[Entry]
    keys: set[str] = field(init=False)
    by_slot: dict[tuple[Any, ...], list[Entry]] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = {entry.key for entry in self.entries}
        self.by_slot = {}
        for entry in self.entries:
            self.by_slot.setdefault(entry.slot.spelled, []).append(entry)


def to_plain(explanation: Explanation) -> dict[str, Any]:
    return asdict(explanation)


def slot_of(artifact: Artifact) -> Slot:
    return _slot(_line(artifact))


def _line(artifact: Artifact) -> dict[str, Any]:
    return {
        "key": artifact.key,
        "kind": artifact.kind,
        "arch": artifact.arch,
        "toolchain": artifact.identity.toolchain,
        "version": artifact.identity.version,
        "variant": artifact.variant,
        "params": artifact.params,
        "argv": list(artifact.argv),
    }


def _slot(line: Mapping[str, Any]) -> Slot:
    facts = {name: str(line[name]) for name in ("arch", "toolchain", "variant")}
    if "version" in line:
        facts["version"] = str(line["version"])
    facts |= {f"params.{name}": value for name, value in _flat(line["params"])}
    return Slot(facts, tuple(line["argv"]) if "argv" in line else None)


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
        self._known: dict[str, NamedBuilds] = {}

    def path(self, name: str) -> Path:
        return self.folder / f"{quote(name, safe='')}.jsonl"

    def append(self, artifact: Artifact, created: str) -> None:
        line = _line(artifact) | {"created": created}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(artifact.name)
        with path.open("a", encoding="utf-8") as file:
            file.write(seal(line, key_of(path)) + "\n")

    def note_uses(self, artifacts: Iterable[Artifact]) -> None:
        """Make each of these the newest entry of its slot, if it is not."""
        named: dict[str, dict[str, Artifact]] = {}
        for artifact in artifacts:
            named.setdefault(artifact.name, {})[artifact.key] = artifact
        for name, used in named.items():
            try:
                keys = set(_KEY.findall(self.path(name).read_text(encoding="utf-8")))
            except (OSError, ValueError):
                keys = set()
            if keys != used.keys():
                self._note_newest(name, used)

    def _note_newest(self, name: str, used: Mapping[str, Artifact]) -> None:
        """Slow path: the index has unused versions, or lacks some used ones."""
        known = self._read(name)
        newest = {entries[-1].key for entries in known.by_slot.values()}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        for key, artifact in used.items():
            if key not in newest:
                self.append(artifact, now)

    def knows(self, artifact: Artifact) -> bool:
        """Whether this exact artifact was built under its name before."""
        return artifact.key in self._read(artifact.name).keys

    def predecessors(self, artifact: Artifact) -> Iterator[Entry]:
        """Older builds under the same name: its slot first, newest first, then the most alike."""
        slot, known = slot_of(artifact), self._read(artifact.name)
        yield from reversed(known.by_slot.get(slot.spelled, []))
        others = [entry for entry in known.entries[: -_LOOK_BACK - 1 : -1] if entry.slot != slot]
        yield from sorted(others, key=lambda entry: entry.slot.distance(slot))

    def _read(self, name: str) -> NamedBuilds:
        path = self.path(name)
        try:
            stamp = file_stamp(path)
        except OSError:
            return NamedBuilds([], [])
        known = self._known.get(name)
        if known is None or known.stamp != stamp:
            entries = [_entry(line, key_of(path)) for line in path.read_bytes().splitlines()]
            known = NamedBuilds(stamp, [entry for entry in entries if entry])
            self._known[name] = known
        return known


def _entry(line: bytes, key: str) -> Entry | None:
    """An entry of the index; None for a damaged line. Lines of older versions have no hash."""
    try:
        data = json.loads(line)
        if SEAL in data:
            data = unseal(line, key)
        return Entry(data["key"], data["kind"], _slot(data))
    except (ValueError, KeyError, TypeError):
        return None


def explain(
    artifact: Artifact,
    build: Path,
    index: Index,
    condition: Missing | Damaged,
    *,
    sweep: bool = False,
) -> Explanation:
    """Why `artifact`, which is missing or damaged on disk, has to be built.

    In a sweep, a point that was never built is new, not a change of another point.
    """
    if isinstance(condition, Damaged):
        return Explanation("corrupt", f"the built file was damaged: {condition.reason}")
    if (build / FAILED / artifact.key).exists():
        return Explanation("failed", "it did not compile last time")
    if index.knows(artifact):
        return Explanation("deleted", "it was built before, but its folder is gone")
    gone, slot = "", slot_of(artifact)
    for entry in index.predecessors(artifact):
        gone = "; what was built before under this name is gone"
        folder = artifact.folder(build).parent / entry.key
        manifest = read_manifest(folder) if entry.kind == artifact.kind else None
        if manifest is None:
            continue
        if sweep and (additions := slot.additions(entry.slot)):
            return Explanation("new", f"not built before with {', '.join(additions)}")
        # What changes several steps alike is told once.
        found = {detail["text"]: detail for detail in _differences(artifact, folder, manifest)}
        details = tuple(found.values())
        if details:
            text = "; ".join(detail["text"] for detail in details)
            return Explanation(details[0]["kind"], text, details)
    return Explanation("new", f"nothing was built under this name before{gone}")


def _differences(
    artifact: Artifact, folder: Path, old: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Differences, most telling first: a changed parameter precedes the source it changed."""
    parameters = list(_changed_parameters(artifact, old))
    files = list(_changed_texts(artifact.files, old.get("inputs", {}), folder))
    # Plain C files and headers are compiled unchanged: report them once, as files.
    copied = {one["file"] for one in files} & {*artifact.origins, *old.get("origins", {})}
    origins = [
        one
        for one in _changed_texts(artifact.origins, old.get("origins", {}), folder / ORIGINS)
        if one["file"] not in copied
    ]
    if not files:
        parameters, origins = [], []
    compiler = list(_changed_compiler(artifact, old))
    # A different compiler comes with its own headers and libraries.
    another = any(one["old"] != one["new"] for one in compiler)
    yield from compiler
    if not another:
        yield from _changed_linked(artifact, old)
    yield from parameters
    if origins:
        rendered = [
            one for one in files if one["file"] not in copied and not one["file"].endswith(".h")
        ][:1]
        for one in origins:
            shown = f" (rendered: {rendered[0]['text']})" if rendered else ""
            yield {**one, "kind": "source", "text": one["text"] + shown, "rendered": rendered}
    for one in files:
        header = one["file"].endswith(".h")
        if header or one["file"] in copied or not (origins or parameters):
            yield {**one, "kind": "header" if header else "source"}
    if not another:
        yield from _changed_headers(artifact, old)
    yield from _changed_flags(artifact, old)
    if not another:
        yield from _changed_steps(artifact, folder, old)


def _changed_steps(
    artifact: Artifact, folder: Path, old: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Differences between the inputs of the steps that an artifact is made from."""
    before: Mapping[str, str] = old.get("steps", {})
    for path, step in artifact.steps.items():
        if path not in before:
            yield {"kind": "source", "text": f"{step.main} is new", "file": step.main}
        elif before[path] != step.key:
            place = folder.parent.parent / FOLDERS[step.kind] / before[path]
            manifest = read_manifest(place)
            if manifest is None:
                text = f"{step.main} is compiled from other inputs"
                yield {"kind": "source", "text": text, "file": step.main}
            else:
                yield from _differences(step, place, manifest)
    for path in before:
        if path not in artifact.steps:
            yield {"kind": "source", "text": f"{path} is no longer part of it", "file": path}


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


def _changed_linked(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """System files that changed under the same flags; other flags read other files."""
    if list(old.get("argv", ())) != list(artifact.argv) or "linked" not in old:
        return
    before, now = old["linked"], artifact.linked
    changed = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    if WRAPPER in changed:
        changed.remove(WRAPPER)
        text = "compiler: the script that starts it gives it other flags or starts another one"
        yield {"kind": "compiler", "text": text, "parts": [WRAPPER]}
    if changed:
        text = f"what the flags read changed: {', '.join(changed)}"
        yield {"kind": "compiler", "text": text, "parts": changed}


def _changed_parameters(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, now = dict(_flat(old.get("params", {}))), dict(_flat(artifact.params))
    if "dtype" not in before:
        # Manifests of an older Kernloom have no dtype.
        now.pop("dtype", None)
    for name in sorted(before.keys() | now.keys()):
        a, b = before.get(name, "(absent)"), now.get(name, "(absent)")
        if a == b:
            continue
        if name == "dtype":
            a, b = a.strip('"'), b.strip('"')
        text = f"{name}: {a} -> {b}" if name == "dtype" else f"parameter {name}: {a} -> {b}"
        yield {"kind": "parameter", "text": text, "name": name, "old": a, "new": b}


def _changed_flags(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, now = list(old.get("argv", ())), list(artifact.argv)
    if before != now:
        removed = _added_words(before, now, artifact)
        added = _added_words(now, before, artifact)
        if {*removed, *added} - {*BARE}:
            # These flags follow from other inputs.
            removed, added = _without(removed, BARE), _without(added, BARE)
        said = _plus_minus(removed, added) or "the same flags in another order"
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


def _added_words(these: Sequence[str], than: Sequence[str], artifact: Artifact) -> list[str]:
    """Words that are in `these` more often than in `than`, without file names."""
    more = Counter(these) - Counter(than)
    return [part for part in more.elements() if part not in artifact.files]


def _without(words: Sequence[str], others: Sequence[str]) -> list[str]:
    return [word for word in words if word not in others]


def _plus_minus(removed: Sequence[str], added: Sequence[str]) -> str:
    return " ".join([*(f"-[{part}]" for part in removed), *(f"+[{part}]" for part in added)])


def _changed_headers(artifact: Artifact, old: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, now = old.get("headers", {}), artifact.headers
    names = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    for name in names:
        how = "changed" if name in before and name in now else "added"
        how = "no longer included" if name not in now else how
        if name == HAS_INCLUDE:
            # It follows from other differences of the preprocessed source.
            if names == [HAS_INCLUDE] and _same_command(artifact, old):
                text = f"{HAS_INCLUDE}: a header that a source asks for has appeared or is gone"
                yield {"kind": "header", "text": text, "file": name}
            continue
        text = f"system header <{name}>: {how}"
        if folder := _own_folder(name, artifact.argv):
            # Only the header's hash is stored.
            text = f"header {name} in {folder}: {how}"
        yield {"kind": "header", "text": text, "file": name}


def _same_command(artifact: Artifact, old: Mapping[str, Any]) -> bool:
    """Whether the same files are compiled with the same flags."""
    files = {path: sha256_text(text) for path, text in artifact.files.items()}
    return files == old.get("inputs", {}) and list(old.get("argv", ())) == list(artifact.argv)


def _own_folder(name: str, argv: Sequence[str]) -> str:
    """The folder of the flag (-I, -isystem, ...) that provides a header; '' for the system's."""
    for place, word in enumerate(argv):
        for flag in FOLDER_FLAGS:
            if word.startswith(flag):
                folder = word.removeprefix(flag) or "".join(argv[place + 1 : place + 2])
                if folder and (Path(folder) / name).is_file():
                    return folder
    return ""


def _changed_texts(
    now: Mapping[str, str], before: Mapping[str, str], folder: Path
) -> Iterator[dict[str, Any]]:
    """Files whose text differs from the copy in `folder`, with the first changed line."""
    for path in sorted(now.keys() | before.keys()):
        if path not in now:
            yield {"file": path, "line": 0, "text": f"{path}: no longer used"}
        elif path not in before:
            yield {"file": path, "line": 0, "text": f"{path}: added"}
        elif sha256_text(now[path]) != before[path]:
            try:
                old_text = (folder / path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                old_text = ""
            if sha256_text(old_text) != before[path]:
                # The old text is missing or damaged, so the line is unknown.
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
