"""Hostile and damaged recipes run with a note or are refused in one message, and reach nothing.

Most cases are read and planned in this process, where every file that is written and every program
that is started is seen; some go through the real command line.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks import Attack
from command_line import Project, listing
from kernloom.base.errors import KernloomError
from parts import without
from recipes import RecipeBench

WORDS = (
    ("workload=mlp", "target=host"),
    ("workload=sum", "target=host_counted"),
    ("workload=axpy", "target=opencl"),
    ("workload=softmax", "target=riscv_bare"),
)
"""Recipes to begin with: fused steps, emulators, options of a device, firmware."""
SPREAD = (
    *("x", "", " ", "é", "0", "a b", "???", "1+", "x" * 5000, "\x1b[31m", "${oc.env:HOME}", None),
    *(0, 3, -1, 1.5, True, False, 2**63, 10**400, -1e308, math.inf, math.nan),
    *([], [1], ["x"], [None], [[[]]], {}, {"a": 1}, {1: 2}, {"ref": "workload"}),
)
"""Values of every type."""

Path_ = tuple[Any, ...]


class Watch:
    """Sees every program that this process starts and every file that it opens for writing."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
            self.seen.append(f"{event} {arguments[:2]}")
        elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            self.seen.append(f"write {arguments[0]}")
        elif event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink"):
            self.seen.append(f"{event} {arguments[:2]}")

    def during(self, act: Callable[[], Any]) -> list[str]:
        """What was seen while `act` was done; what it raises is passed on."""
        self.seen, self.on = [], True
        try:
            act()
        finally:
            self.on = False
        return self.seen


@pytest.fixture(scope="session")
def watch() -> Watch:
    return Watch()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> RecipeBench:
    return RecipeBench(Project(tmp_path_factory.mktemp("attacked")))


@pytest.fixture(scope="session")
def documents(bench: RecipeBench) -> list[Any]:
    """Recipes as they are written; those of targets that are not available here are left out."""
    found = []
    for words in WORDS:
        try:
            plan = bench.plan(*words, "case=small")
        except KernloomError:
            continue
        path = bench.write("written.yaml", [plan])
        bench.replan(path)
        found.append(bench.document(path))
    return found


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The path of everything inside a document."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner if isinstance(value, (dict, list)) else ():
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


def at(value: Any, path: Path_) -> Any:
    for key in path:
        value = value[key]
    return value


def shown(path: Path_) -> str:
    return ".".join(map(str, path))


def mutate(document: Any, chance: random.Random) -> str:
    """Change the structure of a document at one place; what was done."""
    paths = list(places(document))
    path = chance.choice(paths)
    parent, last = at(document, path[:-1]), path[-1]
    how = chance.choice(["replace", "replace", "replace", "remove", "move", "rename", "wrap"])
    if how == "remove":
        del parent[last]
    elif how == "move":
        parent[last] = copy.deepcopy(at(document, chance.choice(paths)))
    elif how == "rename" and isinstance(parent, dict):
        parent[chance.choice(["x", 3, None, "name", "../x"])] = parent.pop(last)
    elif how == "wrap":
        parent[last] = chance.choice([[parent[last]], {"x": parent[last]}])
    else:
        parent[last] = chance.choice(SPREAD)
    return f"{how} {shown(path)}"


def refused(bench: RecipeBench, path: Path) -> str:
    """Why a recipe is refused; '' if it is not. Anything but a KernloomError gets through."""
    try:
        bench.replan(path)
    except KernloomError as error:
        return str(error) or type(error).__name__
    return ""


def test_attack_structure_of_recipes(
    attack: Attack, bench: RecipeBench, documents: list[Any]
) -> None:
    """Any structure gives one message or a plan, and no change goes without a note."""
    for seed in attack.cases(range(3000), small=40):
        chance = random.Random(seed)
        original = chance.choice(documents)
        document = copy.deepcopy(original)
        what = "; ".join(mutate(document, chance) for _ in range(chance.choice([1, 1, 2])))
        path = bench.save("mutated.yaml", document)
        try:
            entries, _ = bench.replan(path)
        except KernloomError:
            continue
        except Exception as error:
            attack.failed(f"{seed}: {what}: {type(error).__name__}: {error}")
            continue
        noted = any("edited" in note for entry in entries for note in entry.notes)
        if not noted and document != original:
            attack.failed(f"{seed}: {what}: no note")
    attack.check()


def hostile_values(folder: Path) -> tuple[Any, ...]:
    """What a stranger might put anywhere; `folder` is where it would show."""
    script, mark = str(folder / "script"), str(folder / "mark")
    return (
        script,
        f"-D{mark}",
        f"; {script};",
        f"$({script})",
        f"| {script}",
        f"{mark}\n{script}",
        f"../../../../../../../../..{mark}",
        f"-fplugin={script}.so",
        f"@{script}",
        ["/bin/sh", "-c", script],
        {"cc": script},
        {"program": script, "args": [script], "install": {"debian": script}},
        {"template": script, "file": script, "path": script},
        {"use": "select", "file": script},
        f"${{oc.env:{script}}}",
        f"\x1b]0;{script}\x07",
        10**400,
        2**63,
        -1,
        math.inf,
    )


def with_script(folder: Path) -> Path:
    """A folder with a program that leaves a mark in it."""
    folder.mkdir(exist_ok=True)
    script = folder / "script"
    script.write_text(f"#!/bin/sh\ntouch {folder}/mark\n", encoding="utf-8")
    script.chmod(0o755)
    return folder


def test_attack_fields_of_recipes(
    attack: Attack, bench: RecipeBench, documents: list[Any], watch: Watch, tmp_path: Path
) -> None:
    """No value of any field names a program that is started, or a file that is written."""
    values = hostile_values(with_script(tmp_path / "hostile"))
    cases = [
        (document, path, value)
        for document in documents
        for path in places(document)
        if "cases" not in path
        for value in values
    ]
    before = listing(tmp_path)
    chosen = attack.random.sample(cases, 4000)
    for document, path, value in attack.cases(chosen, small=50):
        hostile = copy.deepcopy(document)
        at(hostile, path[:-1])[path[-1]] = value
        file = bench.save("hostile.yaml", hostile)
        what = f"{shown(path)} = {str(value)[:60]!r}"
        try:
            seen = watch.during(lambda file=file: refused(bench, file))  # type: ignore[misc]
        except Exception as error:
            attack.failed(f"{what}: {type(error).__name__}: {error}")
            continue
        if any(str(tmp_path) in text for text in seen):
            attack.failed(f"{what}: {[text for text in seen if str(tmp_path) in text]}")
    if listing(tmp_path) != before:
        attack.failed("something was written beside the recipe")
    attack.check()


CODE = "kernloom_evil"
PAYLOADS = (f"x*\\\n/ {CODE}(); /*", f"x); {CODE}(", f'x"\n#define {CODE}\n', f"x;{CODE}")
"""Texts that would be code if they got into a C source."""


def texts(value: Any) -> Iterator[str]:
    """Every text in a document, keys included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *texts(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def renamed(value: Any, text: str, other: str) -> Any:
    """A document with another text in every place that has this one."""
    if isinstance(value, dict):
        return {
            other if key == text else key: renamed(inner, text, other)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [renamed(inner, text, other) for inner in value]
    return other if value == text and isinstance(value, str) else value


def given_params(document: Any, payload: str) -> Iterator[Any]:
    """The document with parameters of its own in the place of those that `select` hands on."""
    config = document["trials"][0]["config"]
    for stage, options in config["pipeline"]["stages"].items():
        if "params" not in options.get("in", {}):
            continue
        for step, bound in config["workload"]["steps"].items():
            group = config["workload"]["kernels"][bound["kernel"]]["tunables"].get(options["use"])
            for tunable in [payload, *(group or {})]:
                hostile = copy.deepcopy(document)
                stages = hostile["trials"][0]["config"]["pipeline"]["stages"]
                stages[stage]["in"]["params"] = {step: {tunable: payload}}
                yield hostile


def test_attack_code_in_recipes(attack: Attack, bench: RecipeBench, documents: list[Any]) -> None:
    """No text of a recipe gets into a source as anything but a name."""
    hostile = [
        (payload, text, renamed(document, text, payload))
        for document in documents
        for payload in PAYLOADS
        for text in sorted(set(texts(document["trials"][0]["config"])))
    ]
    hostile += [
        (payload, "params", changed)
        for document in documents
        for payload in PAYLOADS
        for changed in given_params(document, payload)
    ]
    for payload, text, document in attack.cases(hostile, small=60):
        file = bench.save("code.yaml", document)
        try:
            _, (plan,) = bench.replan(file)
        except KernloomError:
            continue
        except Exception as error:
            attack.failed(f"{text!r} -> {payload!r}: {type(error).__name__}: {error}")
            continue
        sources = [source for _, one in plan.named_artifacts for source in one.files.values()]
        if any(CODE in source for source in sources):
            attack.failed(f"{text!r} -> {payload!r}: it is in a source")
    attack.check()


def test_attack_bytes_of_recipes(attack: Attack, bench: RecipeBench, documents: list[Any]) -> None:
    """A changed byte is refused, noted, or changes nothing of the trial."""
    words = ("workload=axpy", "target=host", "case=small")
    path = bench.write("bytes.yaml", [bench.plan(*words)])
    whole = path.read_bytes()
    (before,), (plan,) = bench.replan(path)
    damaged = bench.folder / "damaged.yaml"
    for seed in attack.cases(range(1500), small=60):
        chance = random.Random(seed)
        place = chance.randrange(len(whole))
        byte = chance.choice([whole[place] ^ (1 << chance.randrange(8)), chance.randrange(256)])
        damaged.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
        try:
            (entry,), (now,) = bench.replan(damaged)
        except KernloomError:
            continue
        except Exception as error:
            attack.failed(f"byte {place} = {byte}: {type(error).__name__}: {error}")
            continue
        same = (now.id, entry.artifacts) == (plan.id, before.artifacts)
        if not same and not any("edited" in note for note in entry.notes):
            attack.failed(f"byte {place} = {byte}: another trial without a note")
    attack.check()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    project = Project(tmp_path_factory.mktemp("home"))
    project.take_runner_from(shared_project)
    done = project.run("run", "workload=axpy", "case=small", "recipe=host.yaml")
    assert done.code == 0, done.stderr
    return project


def program_fields(folder: Path, target: str) -> list[tuple[Path_, Any]]:
    """Fields that lead to a program, each with a value that names a script."""
    script = str(folder / "script")
    config: Path_ = ("trials", 0, "config")
    emulator: Path_ = (*config, "target", "emulator")
    fields: list[tuple[Path_, Any]] = [
        ((*config, "toolchain", "tools", "cc"), script),
        ((*config, "toolchain", "tools", "linker"), script),
        ((*config, "toolchain", "install", "debian"), f"{script} | sudo sh"),
        ((*config, "toolchain", "flags"), [f"-fplugin={script}"]),
        ((*config, "toolchain", "kernel_flags"), ["-wrapper", script]),
        ((*config, "toolchain", "extra_flags"), [f"-B{folder}"]),
        ((*config, "toolchain", "variants", "release"), [f"-fuse-ld={script}"]),
        ((*config, "arch", "flags", "gcc"), [f"@{script}"]),
        ((*config, "target", "emulator"), {"program": script}),
        ((*config, "target", "device"), script),
        ((*config, "target", "options"), {"script": script}),
        ((*config, "workload", "kernels", "axpy", "sources", "host", "template"), script),
        ((*config, "workload", "tensors", "x", "fill"), {"kind": "file", "path": script}),
        ((*config, "workload", "golden", "y"), f"__import__('os').system('{script}')"),
        ((*config, "pipeline", "stages", "library", "use"), script),
        ((*config, "pipeline", "stages", "choice", "file"), script),
        ((*config, "measure", "peers"), [script]),
        ((*config, "runtime", "name"), f"../../..{folder}"),
        ((*config, "arch", "name"), f"../../..{folder}/mark"),
        ((*config, "workload", "name"), f"../../..{folder}/mark"),
    ]
    if target != "host":
        fields += [
            ((*emulator, "program"), script),
            ((*emulator, "args"), ["/bin/sh", "-c", script, "-cpu", "max"]),
            ((*emulator, "args"), ["-D", str(folder / "mark"), "-d", "in_asm"]),
            ((*emulator, "install"), {"debian": f"{script} | sudo sh"}),
        ]
    return fields


@pytest.mark.parametrize("target", ["host", "host_counted"])
def test_attack_programs_of_recipes(
    attack: Attack, bench: RecipeBench, home: Project, target: str, tmp_path: Path
) -> None:
    """Through the real command line: nothing that a recipe names is started or written."""
    folder = with_script(tmp_path / "hostile")
    try:
        plan = bench.plan("workload=axpy", f"target={target}", "case=small", "measure=quick")
    except KernloomError as error:
        without(str(error))
    document = bench.document(bench.write("programs.yaml", [plan]))
    outside = [home.home, tmp_path]
    for path, value in attack.cases(program_fields(folder, target), small=2):
        hostile = copy.deepcopy(document)
        at(hostile, path[:-1])[path[-1]] = value
        file = bench.save("hostile.yaml", hostile)
        before = listing(*outside)
        done = home.run("recipe", "run", str(file))
        what = f"{shown(path)} = {str(value)[:60]!r}"
        if "Traceback" in done.stderr or done.code not in (0, 1, 2, 3):
            attack.failed(f"{what}: {done}")
        elif listing(*outside) != before or (folder / "mark").exists():
            attack.failed(f"{what}: something was written")
        elif "sudo" in done.stderr + done.stdout:
            attack.failed(f"{what}: the recipe's install command is shown")
    attack.check()
