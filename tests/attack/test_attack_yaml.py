"""YAML that is meant to exhaust or confuse whoever reads it."""

# ruff: noqa: SIM905 (words are easier to read and to add to than quoted lists of them)

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from attacks import Attack
from command_line import ENGINE
from kernloom.base.errors import ConfigError
from kernloom.config.reader import RECIPE, load_yaml, read_yaml

PIECES = [
    *"a b << 1 2.5 1e400 0x1f 1:30 .nan ~ true off = é - ? : [ ] { } , # & * ! | > % @ `".split(),
    *("- ", "? ", ": ", ", ", "\n", "\n  ", "\n    ", "\t", "|\n ", ">\n ", "x: ", "y: "),
    *("&x ", "*x", "&y ", "*y", "! ", "!<tag:x> ", "---\n", "...\n", "%YAML 1.1\n"),
    *(f"!!{tag} " for tag in "str int float bool set binary timestamp omap map seq".split()),
    *("!!python/name:os.system ", '"', "'", "\\", "\x00", "\x85", "\u2028", "\ufeff", "\ud800"),
]
READ = """
import resource, sys
from pathlib import Path
from kernloom.config.reader import RECIPE, read_yaml
from kernloom.base.errors import ConfigError
try:
    read_yaml(Path(sys.argv[1]), RECIPE)
except ConfigError as error:
    print(str(error)[:500])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
MOST_MIB = 1000
"""For the largest file that is read at all."""


def bombs() -> Iterator[tuple[str, bytes]]:
    """Name and contents of files that stand for much more than they hold."""
    for name, opening in {
        "lists": "[",
        "maps": "{a: ",
        "items": "- ",
        "keys": "? ",
        "mixed": "[{a: ",
    }.items():
        for depth in (49, 60, 30_000, 1_000_000):
            yield f"{depth} {name}", (opening * depth).encode()
    for width, levels in ((2, 40), (9, 12), (100, 6), (3, 100)):
        names = range(1, levels)
        lists = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in names]
        merges = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * width)}]}}" for i in names]
        maps = [
            f"a{i}: &a{i} {{{', '.join(f'k{n}: *a{i - 1}' for n in range(width))}}}" for i in names
        ]
        for kind, lines in {"aliases": lists, "merges": merges, "maps": maps}.items():
            yield f"{width}^{levels} {kind}", "\n".join(["a0: &a0 {x: 1, y: 2}", *lines]).encode()
    yield "itself", b"&a [*a]"
    yield "itself, merged", b"&a {<<: *a}"
    yield "many anchors", b"".join(b"- &a%d x\n" % i for i in range(300_000))
    yield "many aliases", b"a: &a [1]\nb:\n" + b"- *a\n" * 600_000
    yield "many values", b"- x\n" * 2_000_000
    yield "many keys", b"".join(b"k%d: 1\n" % i for i in range(600_000))
    yield (
        "many merges",
        b"a: &a {x: 1}\n" + b"".join(b"b%d: {<<: *a}\n" % i for i in range(300_000)),
    )
    yield "long scalar", b"a: " + b"x" * (10 << 20)
    yield "long number", b"a: 1" + b"0" * (1 << 20)
    yield "long sexagesimal", b"a: 1" + b":30" * (1 << 19)
    yield "long key", b"x" * (1 << 20) + b": 1"
    yield "long line of quotes", b"a: " + b'""' * (1 << 19)
    yield "long comment", b"#" * (10 << 20)
    yield "long indent", b"a:\n" + b" " * (10 << 20) + b"b: 1"
    yield "many documents", b"---\n" * 500_000
    yield "many directives", b"%A b\n" * 500_000
    yield "too large", b"#" * (RECIPE.size + 1)
    for encoding in ("utf-16", "utf-32", "utf-16-be"):
        yield encoding, "a: [1, 2]".encode(encoding)
    yield "latin-1", b"a: \xe9"
    yield "overlong", b"a: \xc0\xaf"
    yield "NUL", b"a: \x00"
    yield "NULs", b"\x00" * (1 << 20)
    yield "controls", b"a: \x1b[31m"
    yield "twice", b"a: 1\na: 2"
    yield "twice, quoted", b"{a: 1, 'a': 2}"
    for tag in ("!!python/object/apply:os.system [id]", "!!python/name:os.system", "!!set {a}"):
        yield tag, f"a: {tag}".encode()
    for tag in ("!!binary aGk=", "!!timestamp 2001-01-01", "!!omap [a: 1]", "!x y", "!<!> y"):
        yield tag, f"a: {tag}".encode()


def test_attack_yaml_bombs(attack: Attack, tmp_path: Path) -> None:
    """Each is read or refused by name, by a process that stays small and is not killed."""
    for name, data in attack.cases(list(bombs()), small=8):
        file = tmp_path / "bomb.yaml"
        file.write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", READ, str(file)],
            env={"PYTHONPATH": str(ENGINE)},
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
        )
        *said, peak = done.stdout.splitlines() or [""]
        if done.returncode or (said and "bomb.yaml" not in said[0]):
            attack.failed(f"{name}: {done.returncode} {done.stdout[:200]} {done.stderr[-300:]}")
        elif int(peak) > MOST_MIB:
            attack.failed(f"{name}: took {peak} MiB")
    attack.check()


def test_attack_yaml_texts(attack: Attack) -> None:
    def text(random: random.Random) -> str:
        return "".join(random.choice(PIECES) for _ in range(random.randint(1, 25)))

    for case in attack.cases([text(attack.random) for _ in range(60_000)], small=3000):
        try:
            load_yaml(case, where="some/file.yaml")
        except ConfigError as error:
            if "some/file.yaml" not in str(error):
                attack.failed(f"{case!a}: {error}")
        except Exception as error:
            attack.failed(f"{case!a}: {type(error).__name__}: {error}")
    attack.check()


def test_attack_yaml_files(attack: Attack, tmp_path: Path) -> None:
    """Config files with bytes changed, cut off or doubled."""
    shipped = sorted((ENGINE.parent / "configs").glob("*/*.yaml"))
    file = tmp_path / "file.yaml"
    for _ in attack.cases(range(5_000), small=300):
        data = bytearray(attack.random.choice(shipped).read_bytes())
        for _ in range(attack.random.randint(1, 5)):
            at = attack.random.randrange(len(data) + 1)
            kind = attack.random.randrange(3)
            if kind == 0 and at < len(data):
                data[at] = attack.random.randrange(256)
            elif kind == 1:
                data[at:at] = attack.random.choice(PIECES).encode("utf-8", "surrogatepass")
            else:
                del data[at : at + attack.random.randint(1, 20)]
        file.write_bytes(data)
        try:
            read_yaml(file)
        except ConfigError as error:
            if str(file) not in str(error):
                attack.failed(f"{bytes(data)!r}: {error}")
        except Exception as error:
            attack.failed(f"{bytes(data)!r}: {type(error).__name__}: {error}")
    attack.check()
