"""Hostile and damaged requests, locks and archives: one clear error or a faithful replay."""

from __future__ import annotations

import copy
import gzip
import io
import math
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks import Attack
from command_line import Project, listing
from kernloom.base.errors import KernloomError
from kernloom.config.reader import load_yaml
from kernloom.recipe.appendix import appendix
from kernloom.recipe.archive import read_archive, unpack
from kernloom.recipe.flow import block
from kernloom.recipe.levels import changes_of, compared
from kernloom.recipe.lock import DIGEST, digest_of, to_document
from kernloom.recipe.page import page
from kernloom.recipe.recipe import read_recipe
from kernloom.recipe.recipe_difference import compared as differences
from kernloom.run.planning import plan_each
from recipes import RecipeBench, lock_of

SWEEP = {
    "axes": {"workload.sizes.N": [8, 16]},
    "zip": [{"seed": [1, 2], "measure.samples": [5, 9]}],
    "where": "N > 4",
}
DOCUMENTS: tuple[dict[str, Any], ...] = (
    {
        "recipe": 2,
        "about": "axpy",
        "run": "workload=axpy case=small measure=quick",
        "sweep": SWEEP,
        "peers": ["numpy"],
        "proxy": "case=small",
        "variation": "5%",
        "claims": ["vs numpy >= 1 within 3%", "median_ns(N=8) < median_ns(N=16)"],
    },
    {
        "recipe": 2,
        "run": ["workload=mlp", "case=small"],
        "sweep": {"points": {"a": {"seed": 1}, "b": {"toolchain.extra_flags": ["-O1"]}}},
        "claims": ["instructions == 5 on target=host point=a"],
    },
)
SPREAD: tuple[Any, ...] = (
    *("x", "", " ", "é\U0001f600", "0", "a b", "'", '"', "???", "x" * 5000, "\x1b[31m", None, "="),
    *(0, 3, -1, 1.5, True, 2**63, 10**400, -1e308, math.inf, math.nan, [], [1], ["x"], [None]),
    *([[[]]], {}, {"a": 1}, {"is": 1}, {"base": 0, "set": {}}, {"base": 10**9, "set": 5}),
    *("${oc.env:HOME}", "$" + "{workload.name}", "../../x", "/etc/passwd", "!!python/name:os"),
)
WORDS = r"""
--cfg job
-m
hydra.run.dir=/tmp/x
hydra/launcher=basic
+a.b=1
~workload
store.url=postgresql://x
fleet=slurm
toolchain.tools.cc=/tmp/x
~toolchain.tools
workload=axpy,axpy
workload=glob(*)
seed=range(5)
seed=choice(1,2)
x
=
a=b=c
workload.about=${oc.env:HOME}
workload.about='$\{oc.env:HOME}'
workload.about=${store.url}
seed=[
seed={
'
target=../host
+experiment=[a,b]
experiment=compilers
toolchain@target=gcc
workload.tensors.x.fill={kind:file,path:/etc/passwd}
select.file=/etc/passwd
workload.kernels.axpy.sources.host.template=../../x
arch.flags.gcc=[-fplugin=/tmp/x.so]
target.emulator.program=/tmp/x
target.options.x=1
measure.peers=[os]
trace=/tmp/x
sweep.where=__import__('os')
sweep.sample.count=99999999999
seed=range(0,99999999999)
recipe=/tmp/x.yaml
output=html
build.cache=/tmp/x
whatif=[a]
deps=1
show=all
""".splitlines()[1:]
"""Overrides that a request must not have, or that mean nothing."""
CLAIMS = (
    *("1 < 2", "a" * 600, "median_ns < ", "< 5", "median_ns < 5 < 6", "median_ns(x) < 5", "vs < 1"),
    *("median_ns / 0 < 1", "median_ns < 1e999", "median_ns == 5", "median_ns < 0 on a=b within 5%"),
    *("__class__ > 1", "deterministic > 1", "peers.numpy.ratio > 1", "median_ns within 500%"),
    *("median_ns * median_ns / median_ns < 5", "median_ns((((a=b)))) < 5", "(" * 400 + "< 1"),
)
Path_ = tuple[Any, ...]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*path, key))


def mutate(document: Any, chance: random.Random) -> str:
    """Change a document at one place; what was done."""
    paths = list(places(document))
    path = chance.choice(paths)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    last = path[-1]
    how = chance.choice(["replace", "replace", "remove", "wrap", "rename", "copy"])
    if how == "remove":
        del parent[last]
    elif how == "wrap":
        parent[last] = chance.choice([[parent[last]], {"x": parent[last]}])
    elif how == "rename" and isinstance(parent, dict):
        parent[chance.choice(["x", "name", "../x", "é"])] = parent.pop(last)
    elif how == "copy":
        other: Any = document
        for key in chance.choice(paths):
            other = other[key]
        parent[last] = copy.deepcopy(other)
    else:
        parent[last] = chance.choice(SPREAD)
    return f"{how} {'.'.join(map(str, path))}"


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> RecipeBench:
    return RecipeBench(Project(tmp_path_factory.mktemp("requests")))


def everything(bench: RecipeBench, path: Path) -> tuple[str, list[str]]:
    """All that is done with a recipe but building and running: what came of L1, ids of the trials.
    Anything but a KernloomError gets through."""
    recipe = read_recipe(path)
    assert list(page(recipe)) and list(appendix(recipe))
    assert list(differences(recipe, recipe))
    entries = recipe.entries(bench.assembly.composer, bench.local)
    here = recipe.composed(bench.assembly.composer, bench.local)
    recipe.composed(bench.assembly.composer, bench.local, proxy=True)
    level = ""
    plans = plan_each(bench.assembly, [one.point for one in entries], alone=len(entries) == 1)
    if recipe.lock and not recipe.edited:
        level = compared(recipe.lock.points, here).status
        for locked, plan in zip(recipe.lock.points, plans, strict=True):
            for name, artifact in plan.named_artifacts:
                if name in locked.artifacts:
                    changes_of(recipe.lock, locked.artifacts[name], artifact)
    return level, [plan.id for plan in plans]


@pytest.fixture(scope="session")
def locked(bench: RecipeBench) -> list[tuple[dict[str, Any], list[str]]]:
    """Requests with their locks, and the ids of their trials."""
    found = []
    for request in DOCUMENTS:
        path = bench.save("request.yaml", request)
        points = [one.point for one in bench.read(path)]
        plans = plan_each(bench.assembly, points, alone=False)
        lock = to_document(lock_of(read_recipe(path).request, plans))
        document = {**request, "lock": lock}
        level, ids = everything(bench, save(bench, document))
        assert level == "reached"
        found.append((document, ids))
    return found


def save(bench: RecipeBench, document: Any) -> Path:
    """A document as a file, with a right digest if it has a lock."""
    path = bench.folder / "attack.yaml"
    path.write_text("\n".join(block(document, depth=3)) + "\n", encoding="utf-8")
    return path


def attempt(
    attack: Attack, what: str, act: Callable[[], tuple[str, list[str]]]
) -> tuple[str, list[str]] | None:
    """What an act came to; None if it was refused or got through, which is reported."""
    try:
        return act()
    except KernloomError as error:
        if not str(error):
            attack.failed(f"{what}: refused without a word")
    except Exception as error:
        attack.failed(f"{what}: {type(error).__name__}: {error}")
    return None


def test_attack_requests(attack: Attack, bench: RecipeBench) -> None:
    """Any request is refused in one message, or is planned."""
    before = listing(bench.folder.parent / "home")
    for seed in attack.cases(range(5000), small=60):
        chance = random.Random(seed)
        document = copy.deepcopy(chance.choice(DOCUMENTS))
        how = chance.random()
        if how < 0.35:
            word = chance.choice(WORDS)
            key = chance.choice(["run", "run", "proxy"])
            given = document.get(key, "")
            document[key] = f"{given} {word}" if isinstance(given, str) else [*given, word]
            what = word
        elif how < 0.5:
            what = chance.choice(CLAIMS)
            document["claims"] = [what]
        else:
            what = "; ".join(mutate(document, chance) for _ in range(chance.choice([1, 1, 2])))
        if not isinstance(document, dict):
            continue
        path = save(bench, document)
        attempt(attack, f"{seed}: {what}", lambda path=path: everything(bench, path))  # type: ignore[misc]
    assert listing(bench.folder.parent / "home") == before
    attack.check()


def test_attack_locks(
    attack: Attack, bench: RecipeBench, locked: list[tuple[dict[str, Any], list[str]]]
) -> None:
    """A lock that was changed under a right digest is refused, planned as it was, or L1 fails."""
    for seed in attack.cases(range(4000), small=30):
        chance = random.Random(seed)
        original, ids = chance.choice(locked)
        document = copy.deepcopy(original)
        lock = document["lock"]
        part = chance.choice(["points", "configs", "artifacts", None])
        what = mutate(lock if part is None else lock[part], chance)
        lock[DIGEST] = digest_of(lock)
        path = save(bench, document)
        found = attempt(attack, f"{seed}: {part} {what}", lambda path=path: everything(bench, path))  # type: ignore[misc]
        if found and found[0] == "reached" and found[1] != ids:
            attack.failed(f"{seed}: {part} {what}: L1 is reached by other trials")
    attack.check()


def test_attack_bytes_of_locks(
    attack: Attack, bench: RecipeBench, locked: list[tuple[dict[str, Any], list[str]]]
) -> None:
    """A changed byte of a lock is detected, or changes nothing."""
    document, _ = locked[0]
    original = save(bench, document).read_bytes()
    start = original.index(b"\nlock:") + 1
    for seed in attack.cases(range(1000), small=20):
        chance = random.Random(seed)
        place = chance.randrange(start, len(original))
        byte = chance.choice([original[place] ^ (1 << chance.randrange(8)), chance.randrange(256)])
        path = bench.folder / "attack.yaml"
        path.write_bytes(original[:place] + bytes([byte]) + original[place + 1 :])
        try:
            recipe = read_recipe(path)
        except KernloomError:
            continue
        except Exception as error:
            attack.failed(f"byte {place} = {byte}: {type(error).__name__}: {error}")
            continue
        text = path.read_text(encoding="utf-8")
        if recipe.lock is None or load_yaml(text, where="x")["lock"] != document["lock"]:
            attack.failed(f"byte {place} = {byte}: not detected")
    attack.check()


PLAIN = {
    "recipe.yaml": b"recipe: 2\nrun: workload=axpy\n",
    "kernloom.yaml": b"store: {path: /tmp/x.db}\n",
    "templates/a.c": b"int x;\n" * 100,
    "configs/workload/w.yaml": b"name: w\n",
}


def archive(files: dict[str, bytes], **kind: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in kind.items() if name not in PLAIN else ():
                setattr(member, key, value)
            made.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def chain(kind: bytes) -> bytes:
    """Extended headers, each about the next one."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 10
    return (header.tobuf(tarfile.USTAR_FORMAT) + b"10 a=bcde\n".ljust(512, b"\0")) * 5000


def huge(kind: bytes, size: int) -> bytes:
    header = tarfile.TarInfo("templates/a.c")
    header.type, header.size = kind, size
    return header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def one(name: str, content: bytes = b"x", **kind: Any) -> bytes:
    return archive({**PLAIN, name: content}, **kind)


PRESET = b"# @package _global_\n"
ENVIRONMENT = b"about: ${oc.env:HOME}\n"
ARCHIVES: dict[str, bytes] = {
    "a folder above": one("templates/../../x.c"),
    "an absolute name": one("/tmp/x.c"),
    "a symbolic link": one("templates/x", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": one("templates/x", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a device": one("templates/x", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "a pipe": one("templates/x", b"", type=tarfile.FIFOTYPE),
    "a folder": one("templates/x", b"", type=tarfile.DIRTYPE),
    "a file that is a folder": archive({**PLAIN, "templates/a.c/b": b"x"}),
    "a long name": one("templates/" + "x" * 300),
    "a name that is not UTF-8": one("templates/\udcff.c"),
    "control characters": one("templates/\x1b]0;x\x07.c"),
    "a name of two lines": one("templates/a\n  b.c"),
    "a hidden file": one(".kernloom/store.db"),
    "a program": one("native/x/program.yaml"),
    "Python": one("templates/conftest.py"),
    "a compiler": one("configs/toolchain/gcc.yaml"),
    "the environment": one("configs/workload/x.yaml", ENVIRONMENT),
    "the environment, escaped": one("configs/workload/x.yaml", b'about: "\\x24{oc.env:HOME}"\n'),
    "the environment, folded": one("configs/workload/x.yaml", b'about: "$\\\n {oc.env:HOME}"\n'),
    "the environment, in UTF-16": one(
        "configs/workload/x.yaml", ENVIRONMENT.decode().encode("utf-16")
    ),
    "a key of its reader": one("configs/workload/x.yaml", b"about: ${store.url}\n"),
    "a config for everything": one(
        "configs/workload/matmul.yaml", b"# @package _global_\ntoolchain: {tools: {cc: /tmp/x}}\n"
    ),
    "a config for the compiler": one(
        "configs/workload/matmul.yaml", b"defaults: [{/kernel@_global_.toolchain.tools: x}]\n"
    ),
    "a compiler in the defaults": one("configs/workload/x.yaml", b"defaults: [{/toolchain: x}]\n"),
    "a preset with a compiler": one(
        "configs/experiment/x.yaml", PRESET + b"toolchain: {tools: {cc: /tmp/x}}\n"
    ),
    "a preset with a store": one(
        "configs/experiment/x.yaml",
        b"# @package _global_\ndefaults: [{override /store: postgres}]\n",
    ),
    "a preset with a launcher": one(
        "configs/experiment/x.yaml",
        b"# @package _global_\ndefaults: [{override /hydra/launcher: x}]\n",
    ),
    "a YAML tag": one("configs/workload/x.yaml", b"a: !!python/name:os.system\n"),
    "many zeros": one("data/x", bytes(70 << 20)),
    "a large extended header": one("templates/b.c", pax_headers={"comment": "a" * (70 << 20)}),
    "a chain of extended headers": chain(b"x"),
    "a chain of long names": chain(b"L"),
    "a negative size": huge(b"0", -1),
    "a huge size": huge(b"0", 2**62),
    "a huge extended header": huge(b"x", 2**62),
    "holes": huge(b"S", 100),
    "no recipe": archive({"templates/a.c": b"x"}),
    "nothing": b"",
}


@pytest.mark.parametrize("what", ARCHIVES)
def test_a_hostile_archive_is_refused_in_one_message(what: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "x.tar.gz", tmp_path / "new"
    path.write_bytes(gzip.compress(ARCHIVES[what], 1))
    with pytest.raises(KernloomError) as error:
        unpack(read_archive(path), folder)
    assert "\x1b" not in str(error.value)
    assert not folder.exists()


def test_attack_bytes_of_archives(attack: Attack, tmp_path: Path) -> None:
    """A damaged archive is refused, or unpacks into its folder."""
    whole = archive(PLAIN)
    path = tmp_path / "x.tar.gz"
    for seed in attack.cases(range(3000), small=200):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 10])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        packed = bytearray(gzip.compress(bytes(data), 1))
        if chance.random() < 0.3:
            packed[chance.randrange(len(packed))] = chance.randrange(256)
            packed = packed[: chance.choice([len(packed), chance.randrange(len(packed))])]
        path.write_bytes(packed)
        try:
            unpack(read_archive(path), tmp_path / f"new{seed}")
        except KernloomError:
            continue
        except Exception as error:
            attack.failed(f"{seed}: {type(error).__name__}: {error}")
    outside = {one for one in tmp_path.iterdir() if one != path and not one.name.startswith("new")}
    assert not outside
    attack.check()


def test_an_archive_that_pack_makes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(archive(PLAIN)))
    unpack(read_archive(path), tmp_path / "new")
    assert (tmp_path / "new/kernloom.yaml").read_bytes() != PLAIN["kernloom.yaml"]
