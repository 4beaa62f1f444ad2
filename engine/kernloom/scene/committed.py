"""Committed virtual times of scenes, and the first thing that diverged from them.

A text file for each scene, `expected/NAME.txt` in its folder: for each case, target and runtime the
exact metrics, the tasks, and the slices of all resources, compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from kernloom.base.errors import ConfigError, UsageError
from kernloom.base.files import read_text, write_atomically
from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.base.places import Places
from kernloom.measure.launch_report import LIMITER
from kernloom.measure.trial import Trial
from kernloom.scene.choosing import Pick
from kernloom.scene.reading import FOLDER, SceneSpec
from kernloom.scene.timeline import (
    Slice,
    Timeline,
    difference_text,
    first_difference,
    packed,
    sender_of,
    task_of,
    unpacked,
)

EXPECTED = "expected"
MAX_BYTES = 128 << 10
"""Size of a file; a timeline that is longer is committed in part."""
_TASK, _PACKED, _LEFT_OUT = "task ", "packed ", "left out "
_HEAD = """\
# Exact results of the scene '{name}', kept by `kernloom check --accept`. Times of tasks: start and
# length in ps. The slices of resources are packed.
"""
Key = tuple[str, str, str]
"""Case, target, runtime."""


@dataclass(frozen=True)
class Committed:
    """The exact results of one case on one target."""

    metrics: Mapping[str, str]
    timeline: Timeline = field(default_factory=Timeline)
    left_out: int = 0
    """Number of tasks and slices that the file has no room for; it has the first ones."""

    @property
    def virtual_ns(self) -> str:
        return self.metrics.get(VIRTUAL_TIME.name, "")


def key_of(pick: Pick) -> Key:
    return (pick.case.name, pick.target, pick.runtime)


def exact_metrics(trial: Trial) -> dict[str, str]:
    """The metrics of a trial in virtual time that are the same in every run, as text."""
    metrics = trial.metrics
    if VIRTUAL_TIME.name not in metrics:
        return {}
    found = {name: str(metrics[name]) for name in metrics.get("deterministic", ())}
    limiter = trial.conditions.get(LIMITER)
    return {**found, LIMITER: str(limiter)} if limiter else found


def divergence(committed: Committed, trial: Trial) -> str:
    """The first committed number that a trial does not have; the virtual time comes first."""
    now = exact_metrics(trial)
    order = sorted(committed.metrics, key=lambda name: name != VIRTUAL_TIME.name)
    for name in order:
        before, found = committed.metrics[name], now.get(name, "missing")
        if before != found:
            return f"{name} is {found}, but {before} is committed{_delta(before, found)}"
    return ""


def _delta(before: str, now: str) -> str:
    try:
        return f" ({Decimal(now) - Decimal(before):+})"
    except ArithmeticError:
        return ""


@dataclass(frozen=True)
class Recorded:
    """A second run of a case, with its timeline."""

    virtual_ns: str
    timeline: Timeline


def explain(committed: Committed, trial: Trial, recorded: Recorded) -> list[str]:
    """The first task, resource and hop of a second run that diverged; only its virtual time if
    that is not the trial's, since its timeline does not explain another run."""
    name, again = VIRTUAL_TIME.name, recorded.virtual_ns
    if again != exact_metrics(trial).get(name):
        return [f"{name} is {again} in a second run: virtual time must be the same in every run"]
    return _first_differences(committed, recorded.timeline)


def _first_differences(committed: Committed, now: Timeline) -> list[str]:
    """The first task, resource and hop that diverged, as far as the file goes."""
    lines = []
    whole = not committed.left_out
    tasks = first_difference(committed.timeline.tasks, now.tasks, whole=whole)
    if tasks:
        lines.append(f"first task that diverged: {difference_text(*tasks)}")
    slices = first_difference(committed.timeline.slices, now.slices, whole=whole)
    if slices:
        old, new = slices
        one = new or old
        task = task_of(one, now if new else committed.timeline) if one else None
        of = f", of task {task.what} on {task.resource}" if task else ""
        lines.append(f"first resource and hop that diverged: {difference_text(old, new)}{of}")
        if old and new and old.length == new.length and (sender := sender_of(new)):
            when = "later" if new.start > old.start else "earlier"
            lines.append(f"nothing before it diverged: {sender} sent it {when}")
    elif not whole:
        lines.append(
            f"the first {len(committed.timeline.slices)} slices are as committed; the file has no "
            f"room for the other {committed.left_out}"
        )
    return lines or ["the timeline is as committed"]


def file_of(scene: SceneSpec, places: Places) -> Path:
    """The file of a scene: the project's, if it has one; else the one beside the scene."""
    own, beside = _own_file(scene, places), _file_beside(scene)
    return own if own and own.is_file() else beside


def file_to_write(scene: SceneSpec, places: Places) -> Path:
    """The file for accepted results: of a shipped scene in the project, else beside the scene."""
    own = _own_file(scene, places)
    if own is None and _is_installed(scene, places):
        raise UsageError(
            f"'{scene.name}' is installed with Kernloom, so its results are accepted in a project",
            hint="Run it in a folder with an empty kernloom.yaml.",
        )
    return own or _file_beside(scene)


def _own_file(scene: SceneSpec, places: Places) -> Path | None:
    """The project's file for a scene from elsewhere."""
    if places.project and not scene.file.is_relative_to(places.project):
        return places.project / FOLDER / EXPECTED / f"{scene.name}.txt"
    return None


def _file_beside(scene: SceneSpec) -> Path:
    return scene.file.parent / EXPECTED / f"{scene.name}.txt"


def _is_installed(scene: SceneSpec, places: Places) -> bool:
    """Whether a scene is in an installed package, where nothing is built or written."""
    shipped = scene.file.is_relative_to(places.share)
    return shipped and not places.build.is_relative_to(places.share)


def read_committed(path: Path) -> dict[Key, Committed]:
    """The committed results in a file; empty if there is none."""
    if not path.is_file():
        return {}
    found: dict[Key, Committed] = {}
    for key, lines in _sections(read_text(path, limit=2 * MAX_BYTES), path):
        metrics: dict[str, str] = {}
        tasks: list[Slice] = []
        texts: list[tuple[int, str]] = []
        left_out = 0
        for number, line in lines:
            try:
                if line.startswith(_TASK):
                    tasks.append(Slice.parse(line.removeprefix(_TASK)))
                elif line.startswith(_PACKED):
                    texts.append((number, line.removeprefix(_PACKED)))
                elif line.startswith(_LEFT_OUT):
                    left_out = int(line.removeprefix(_LEFT_OUT))
                else:
                    name, value = line.split(" ", 1)
                    metrics[name] = value
            except ValueError:
                raise _damaged(path, number) from None
        try:
            slices = unpacked([line for _, line in texts])
        except ValueError:
            raise _damaged(path, texts[0][0]) from None
        found[key] = Committed(metrics, Timeline(tuple(tasks), slices), left_out)
    return found


def _sections(text: str, path: Path) -> Iterable[tuple[Key, list[tuple[int, str]]]]:
    found: dict[Key, list[tuple[int, str]]] = {}
    lines: list[tuple[int, str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            parts = line[1:-1].rsplit(" ", 2)
            if len(parts) != 3:
                raise _damaged(path, number)
            lines = found.setdefault((parts[0], parts[1], parts[2]), [])
        elif lines is None:
            raise _damaged(path, number)
        else:
            lines.append((number, line))
    return found.items()


def _damaged(path: Path, number: int) -> ConfigError:
    return ConfigError(
        "this line is damaged",
        key=f"{path}:{number}",
        hint="Restore the file, or write it again: kernloom check --accept.",
    )


def text_of(scene: str, committed: Mapping[Key, Committed]) -> str:
    """The file of a scene: its results, sorted. Timelines share the room that the file has; refused
    if it has none for the metrics."""
    head = _HEAD.format(name=scene)
    titles = {key: f"\n[{' '.join(key)}]\n" for key in sorted(committed)}
    needs = {key: len(_section(committed[key], MAX_BYTES).encode()) for key in titles}
    rooms = _rooms(needs, MAX_BYTES - len(head) - sum(len(t.encode()) for t in titles.values()))
    parts = [head]
    for key, title in titles.items():
        parts += [title, _section(committed[key], rooms[key])]
    text = "".join(parts)
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(
            f"the {len(committed)} results of the scene '{scene}' do not fit into a file of "
            f"{MAX_BYTES >> 10} KiB; nothing is accepted",
            hint="Divide the cases or targets among several scenes.",
        )
    return text


def write_committed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def _rooms(needs: Mapping[Key, int], room: int) -> dict[Key, int]:
    """Bytes for each result: as many as it needs, at most an equal share of the rest."""
    found: dict[Key, int] = {}
    for key in sorted(needs, key=lambda key: needs[key]):
        found[key] = min(needs[key], room // (len(needs) - len(found)))
        room -= found[key]
    return found


def _section(one: Committed, room: int) -> str:
    """The lines of one result. Tasks take at most half of the room, slices the rest."""
    lines = [f"{name} {value}" for name, value in one.metrics.items()]
    room -= _size(lines)
    texts = [f"{_TASK}{task.line()}" for task in one.timeline.tasks]
    kept = one.timeline.slices
    slices = _packed_lines(kept)
    if _size(texts) + _size(slices) > room:
        room -= len(_LEFT_OUT) + 20
        texts = _fitting(texts, room // 2)
        room -= _size(texts)
        while kept and _size(slices) > room:
            kept = kept[: len(kept) * max(room, 0) * 9 // (_size(slices) * 10)]
            slices = _packed_lines(kept)
    timeline = one.timeline
    missing = len(timeline.tasks) + len(timeline.slices) - len(texts) - len(kept) + one.left_out
    left_out = [f"{_LEFT_OUT}{missing}"] if missing else []
    return "\n".join([*lines, *texts, *slices, *left_out]) + "\n"


def _packed_lines(slices: Sequence[Slice]) -> list[str]:
    return [f"{_PACKED}{line}" for line in packed(slices)]


def _fitting(lines: Iterable[str], room: int) -> list[str]:
    """The first lines that fit into some bytes."""
    kept = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return kept


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def changes(before: Committed | None, now: Committed) -> str:
    """The numbers that accepting a result changes, in one line; empty if none."""
    if before is None:
        return f"new: {VIRTUAL_TIME.name} {now.virtual_ns}"
    changed = {
        name: (before.metrics.get(name, "missing"), value)
        for name, value in now.metrics.items()
        if before.metrics.get(name) != value
    }
    texts = [f"{name} {old} -> {new}{_delta(old, new)}" for name, (old, new) in changed.items()]
    if not texts and before.timeline != now.timeline and not before.left_out:
        texts = ["the timeline, not its numbers"]
    return ", ".join(texts)
