"""Batches: many kernels compiled as one, for screening, where compiler start-up dominates.

Each kernel's source is copied into one file, with macros that rename its names at file scope.
Batches that fail to compile for conflicts that remain are built kernel by kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import ceil

from kernloom.build.compile import KERNEL
from kernloom.plan.artifact import Artifact
from kernloom.plan.source import ENTRY

_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_PRAGMA = re.compile(
    r"^[ \t]*#[ \t]*pragma[ \t]+(.*)|\b_Pragma\s*\(\s*(?:\w+\s*\(\s*)?\"?(.*)", re.MULTILINE
)
_OF_ONE_LOOP = re.compile(r"\s*(GCC\s+(unroll|ivdep)|omp\s+simd|clang\s+loop|(no)?unroll)\b")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\S")
_ENUM = re.compile(r"\benum\b[^;{}()]*\{([^{}]*)\}")
_ENUMERATOR = re.compile(r"(?:^|,)\s*([A-Za-z_]\w*)")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NOT_FUNCTIONS = frozenset(
    {"__attribute__", "__attribute", "__asm__", "asm", "_Alignas", "_Pragma", "_Static_assert"}
    | {"static_assert", "__typeof__", "typeof", "_Atomic", "__extension__"}
)
_TAGGED = frozenset({"struct", "union", "enum"})
_ENDS_DECLARATOR = frozenset({";", ",", "=", "[]", "__attribute__", "__attribute"})


@dataclass(frozen=True)
class Batch:
    """One library with several kernels."""

    artifact: Artifact
    entries: Mapping[str, str]
    """Key of each member artifact -> entry symbol of its kernel."""


def batches(artifacts: Iterable[Artifact], size: int, jobs: int = 1) -> list[Batch]:
    """Batches of up to `size` kernels that one command can compile, split among `jobs` compilers;
    kernels that cannot be joined are left out."""
    groups: dict[tuple[object, ...], list[Artifact]] = {}
    for artifact in artifacts:
        if _can_join(artifact):
            groups.setdefault(_batch_key(artifact), []).append(artifact)
    return [
        _joined(part)
        for group in groups.values()
        for part in _parts(group, max(ceil(len(group) / size), min(jobs, len(group) // 2)))
        if len(part) > 1
    ]


def _parts(group: Sequence[Artifact], number: int) -> Iterator[Sequence[Artifact]]:
    """Split into parts of nearly equal length."""
    for part in range(number):
        yield group[len(group) * part // number : len(group) * (part + 1) // number]


def _can_join(artifact: Artifact) -> bool:
    library = artifact.kind == "kernel" and artifact.output == KERNEL and not artifact.packaged
    # Kernels with another entry, such as those for accelerators, are loaded one by one.
    if not library or f"{ENTRY}(" not in artifact.files[artifact.main]:
        return False
    return all(map(_has_loop_pragmas_only, artifact.files.values()))


@lru_cache(maxsize=1024)
def _has_loop_pragmas_only(text: str) -> bool:
    """Whether every pragma applies to the loop after it. Others apply to the rest of the file,
    which holds other kernels, or, like `once`, would drop the second copy of a file."""
    return all(_OF_ONE_LOOP.match(one or other) for one, other in _PRAGMA.findall(text))


def _batch_key(artifact: Artifact) -> tuple[object, ...]:
    """Equal for kernels that one command can compile: all inputs but the text of the main file."""
    included = tuple((path, text) for path, text in artifact.files.items() if path != artifact.main)
    return (
        artifact.argv,
        artifact.identity.digest,
        artifact.main,
        included,
        tuple(artifact.headers.items()),
        tuple(artifact.linked.items()),
        artifact.arch,
        artifact.variant,
    )


def with_outside_files_of(other: Artifact, member: Artifact) -> Artifact:
    """A kernel with the outside files and compiler of another that is compiled alike."""
    same = other.headers == member.headers and other.linked == member.linked
    if same and other.identity.digest == member.identity.digest:
        return member
    return replace(
        member,
        headers=other.headers,
        linked=other.linked,
        identity=other.identity,
        stamps=other.stamps,
    )


def _joined(members: Sequence[Artifact]) -> Batch:
    first = members[0]
    texts = [_copy(member, number) for number, member in enumerate(members)]
    artifact = replace(
        first,
        kind="batch",
        files={**first.files, first.main: "\n".join(texts)},
        params={},
        origins={},
        assembles=any(member.assembles for member in members),
    )
    artifact = replace(artifact, redeclare=lambda: _redeclared(artifact, first))
    return Batch(
        artifact, {member.key: _renamed(ENTRY, number) for number, member in enumerate(members)}
    )


def _redeclared(batch: Artifact, member: Artifact) -> Artifact:
    """A batch with the current outside files."""
    now = member.redeclare() if member.redeclare else member
    return replace(with_outside_files_of(now, batch), stamps=now.stamps)


def _copy(artifact: Artifact, number: int) -> str:
    """A kernel's source with its names and macros made private."""
    names = sorted({name for text in artifact.files.values() for name in file_scope_names(text)})
    macros = sorted({name for text in artifact.files.values() for name in _DEFINE.findall(text)})
    before = "".join(f"#define {name} {_renamed(name, number)}\n" for name in names)
    after = "".join(f"#undef {name}\n" for name in dict.fromkeys([*names, *macros]))
    return f"{before}{artifact.files[artifact.main]}\n{after}"


def _renamed(name: str, number: int) -> str:
    return f"{name}__{number}"


@lru_cache(maxsize=1024)
def file_scope_names(text: str) -> frozenset[str]:
    """Names that a C file defines at file scope: functions, variables, types, tags, enumerators.

    Names that are only declared are defined elsewhere and not renamed.
    """
    plain = _DIRECTIVE.sub(" ", _NOISE.sub(" ", text))
    names = {name for group in _ENUM.findall(plain) for name in _ENUMERATOR.findall(group)}
    for declaration in _declarations(plain):
        names.update(_defined(declaration))
    return frozenset(names)


def _declarations(plain: str) -> Iterator[list[str]]:
    """The tokens of each declaration at file scope, without the content of brackets."""
    found: list[str] = []
    closing: list[str] = []
    for word in _TOKEN.findall(plain):
        if word in _CLOSING:
            if not closing:
                found.append(word + _CLOSING[word])
            closing.append(_CLOSING[word])
            continue
        if closing:
            if word != closing[-1]:
                continue
            closing.pop()
            ended = not closing and word == "}" and bool(_function(found))
        else:
            found.append(word)
            ended = word == ";"
        if ended:
            yield found
            found = []


def _function(declaration: Sequence[str]) -> str:
    """The function that a declaration declares, if any."""
    if "=" in declaration or "typedef" in declaration:
        return ""
    for name, following in pairwise(declaration):
        if following == "()" and name not in _NOT_FUNCTIONS and name[0].isidentifier():
            return name
    return ""


def _defined(declaration: Sequence[str]) -> Iterator[str]:
    pairs = list(pairwise(declaration))
    for before, (name, following) in zip(declaration, pairs[1:], strict=False):
        if following == "{}" and before in _TAGGED and name[0].isidentifier():
            yield name
    if function := _function(declaration):
        if declaration[-1] == "{}":
            yield function
    elif "extern" not in declaration:
        for name, following in pairs:
            if following in _ENDS_DECLARATOR and name[0].isidentifier():
                yield name
