"""Jinja2, set up for C: strict, sandboxed, confined to the template folders."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kernloom.errors import TemplateError


class Templates:
    """Renders templates and says which files took part."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self._used: set[str] = set()
        self._environment = _Environment(
            self._used,
            loader=jinja2.FileSystemLoader([str(folder) for folder in folders]),
            undefined=_Undefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,  # C source, not HTML
        )

    def render(
        self, name: str, variables: Mapping[str, Any], *, key: str
    ) -> tuple[str, frozenset[str]]:
        """The text, and the names of all template files it came from."""
        self._used.clear()
        try:
            text = self._environment.get_template(name).render(variables)
        except jinja2.TemplateSyntaxError as error:
            where = self._shown(error.name or name)
            raise TemplateError(f"{error.message}", key=f"{where}:{error.lineno}") from None
        except jinja2.TemplateNotFound as error:
            raise TemplateError(
                f"template '{error.name}' does not exist",
                key=key,
                hint=f"Looked in: {', '.join(map(str, self.folders))}.",
            ) from None
        except Exception as error:  # whatever a template's own code raises is the user's to mend
            raise TemplateError(
                f"{type(error).__name__}: {error}", key=self._where(error, name)
            ) from None
        return text, frozenset(self._used)

    def _where(self, error: BaseException, name: str) -> str:
        """File and line of the innermost template frame of a traceback."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if any(frame.filename.startswith(str(folder)) for folder in self.folders):
                return f"{frame.filename}:{frame.lineno}"
        return self._shown(name)

    def _shown(self, name: str) -> str:
        for folder in self.folders:
            if (folder / name).is_file():
                return str(folder / name)
        return name


class _Undefined(jinja2.StrictUndefined):
    """An unknown name is named as such wherever it is used, as a number too."""

    __index__ = jinja2.StrictUndefined.__int__


class _Environment(ImmutableSandboxedEnvironment):
    """Notes every template that is loaded, imported and included ones too."""

    def __init__(self, used: set[str], **options: Any) -> None:
        super().__init__(**options)
        self._used = used

    def _load_template(self, name: str, globals: Any) -> jinja2.Template:
        self._used.add(name)
        return super()._load_template(name, globals)
