"""Kernels that are plain files: their texts, signatures and macros."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernloom.base.errors import ConfigError, TemplateError
from kernloom.base.expressions import evaluate
from kernloom.base.places import confined
from kernloom.config.schema import KernelSource, Scalar
from kernloom.plan.csource import (
    Dialect,
    Parameter,
    check_macros,
    read_signature,
    read_with_includes,
    words_in,
)
from kernloom.plan.entry import literal
from kernloom.plan.schedule import ELEMENT, StepRecord


@dataclass(frozen=True)
class PlainFile:
    """A plain C or OpenCL C file with all files it includes."""

    main: str
    found: dict[str, str]
    """Path below the templates' folder -> text."""
    signatures: dict[str, tuple[Parameter, ...]]
    """Function -> parameters."""
    words: frozenset[str]


class PlainFiles:
    """Plain files of several folders."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self.forget()

    def forget(self) -> None:
        self._files: dict[tuple[str, tuple[str, ...]], PlainFile] = {}
        self._texts: dict[str, tuple[str, dict[str, str]]] = {}

    def read(self, name: str, key: str, what: str) -> tuple[str, dict[str, str]]:
        """A file and those that it includes: its path below the templates' folder, and path ->
        text. It is read once: all points of a sweep use the same text."""
        if name not in self._texts:
            path = confined(name, self._folders, key=f"{key}.file", what=what)
            root = next(r for r in self._folders if path.is_relative_to(r.resolve()))
            main = path.relative_to(root.resolve()).as_posix()
            self._texts[name] = main, read_with_includes(path, root)
        main, found = self._texts[name]
        return main, dict(found)

    def get(self, name: str, functions: tuple[str, ...], key: str, dialect: Dialect) -> PlainFile:
        """A plain file with the signatures of these functions."""
        if (name, functions) not in self._files:
            main, found = self.read(name, key, "kernel file")
            where = f"{key}.function"
            signatures = {
                function: read_signature(
                    found[main], function, where=name, key=where, dialect=dialect
                )
                for function in functions
            }
            words = words_in("\n".join(found.values()))
            self._files[name, functions] = PlainFile(main, found, signatures, words)
        return self._files[name, functions]


def macros_of(
    source: KernelSource, file: PlainFile, record: StepRecord, key: str
) -> dict[str, str]:
    """Macro -> value as text; each must be used by the file."""
    macros = {
        macro: _macro_value(value, record, f"{key}.macros.{macro}")
        for macro, value in source.macros.items()
    }
    check_macros(file.words, macros, where=str(source.file), key=key)
    return macros


def _macro_value(value: Scalar, record: StepRecord, key: str) -> str:
    """A macro's value: an expression over the kernel's sizes and decided tunables."""
    if not isinstance(value, str):
        return literal(value) if not isinstance(value, bool) else str(int(value))
    decided = {name: v for group in record.decisions.values() for name, v in group.items()}
    try:
        result = evaluate(value, {**record.sizes, "element": ELEMENT[record.dtype], **decided})
    except ConfigError as error:
        raise TemplateError(error.message, key=key, hint=error.hint) from None
    if isinstance(result, bool):
        return str(int(result))
    word = isinstance(result, str) and result.isascii() and result.replace("_", "").isalnum()
    if not word and not isinstance(result, (int, float)):
        raise TemplateError(f"{result!r} is not a plain word or number", key=key)
    return str(result)
