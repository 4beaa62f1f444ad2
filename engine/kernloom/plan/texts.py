"""Rendered texts of templates, with caches in memory and on disk.

The key of a text is the hash of everything it depends on, so that a cached run need not import the
template engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernloom.base.code_stamp import code_stamp
from kernloom.base.digest import DigestCache
from kernloom.base.errors import TemplateError
from kernloom.base.files import MAX_SOURCE_BYTES, canonical_json, read_text, sha256_text
from kernloom.base.places import confined, share_folder
from kernloom.base.sealed import read_sealed, write_sealed

TEXTS = 500
"""Maximum rendered texts in memory."""


class TemplateTexts:
    """Renders templates of several folders, each file read once until `forget`."""

    def __init__(self, folders: list[Path], cache: Path | None) -> None:
        self._folders = folders
        self._cache = cache
        self._environment: Any = None
        self.forget()

    def forget(self) -> None:
        self._rendered = DigestCache(TEXTS)
        self._failed: dict[str, tuple[str, str]] = {}
        """Message and hint of failed templates: one that times out does so once per sweep."""
        self._read: dict[str, tuple[Path, str] | None] = {}

    def header_file(self, name: str) -> str:
        """A header of an API, as it ships with Kernloom."""
        if name not in self._read:
            path = include_folder() / name
            self._read[name] = (path, read_text(path, limit=MAX_SOURCE_BYTES))
        found = self._read[name]
        assert found
        return found[1]

    def render(
        self, template: str, variables: dict[str, Any], key: str
    ) -> tuple[str, dict[str, str]]:
        """The text of a template, and the texts of all templates that it uses."""
        if template not in self._read:
            confined(template, self._folders, key=f"{key}.template", what="template")
        memo = sha256_text(canonical_json([template, variables, _code()]))
        if memo in self._failed:
            message, hint = self._failed[memo]
            raise TemplateError(message, hint=hint)
        try:
            return self._rendered.by_key(
                memo,
                lambda: self._from_disk(memo) or self._render_anew(template, variables, memo, key),
            )
        except TemplateError as error:
            if len(self._failed) >= TEXTS:
                self._failed.clear()
            self._failed[memo] = (error.message, error.hint)
            raise

    def _find(self, name: str) -> tuple[Path, str] | None:
        """A template's file and text from the first folder that has it, read once, so that the
        rendered text and the recorded origin agree."""
        if name not in self._read:
            self._read[name] = None
            inside = not Path(name).is_absolute() and ".." not in Path(name).parts
            for folder in self._folders if inside else ():
                if (folder / name).is_file():
                    path = confined(name, [folder], key=str(folder / name), what="template")
                    self._read[name] = (folder / name, read_text(path, limit=MAX_SOURCE_BYTES))
                    break
        return self._read[name]

    def _origins(self, names: Iterable[str]) -> dict[str, str | None]:
        """Template -> text; None if it does not exist."""
        found = {name: self._find(name) for name in names}
        return {name: one[1] if one else None for name, one in found.items()}

    def _from_disk(self, memo: str) -> tuple[str, dict[str, str]] | None:
        """The rendered text from the disk cache, if all its templates are unchanged."""
        if not self._cache:
            return None
        try:
            kept = read_sealed(self._cache / f"{memo}.json")
            origins = self._origins(kept["origins"])
            if _hashes(origins) == kept["origins"]:
                return kept["text"], _existing(origins)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def _render_anew(
        self, template: str, variables: dict[str, Any], memo: str, key: str
    ) -> tuple[str, dict[str, str]]:
        from kernloom.plan.templates import Templates

        if self._environment is None:
            self._environment = Templates(self._folders, self._find)
        text, names = self._environment.render(template, variables, key=f"{key}.template")
        origins = self._origins(sorted(names))
        if self._cache:
            kept = {"text": text, "origins": _hashes(origins)}
            try:
                write_sealed(self._cache / f"{memo}.json", kept)
            except OSError:
                self._cache = None  # an unwritable cache only costs time
        return text, _existing(origins)


def include_folder() -> Path:
    """The headers of the APIs that kernels and orchestrations use."""
    return share_folder() / "native" / "include"


def _code() -> str:
    modules = ("plan/texts", "plan/templates", "plan/template_worker")
    return code_stamp(*modules, packages=("jinja2", "markupsafe"))


def _hashes(origins: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: None if text is None else sha256_text(text) for name, text in origins.items()}


def _existing(origins: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in origins.items() if text is not None}
