"""Jinja2, set up for C: strict, sandboxed, confined to the template folders."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kernloom.errors import KernloomError, TemplateError

Read = Callable[[str], tuple[Path, str] | None]
"""A template's name -> its file and text; None if there is none."""


class Templates:
    """Renders templates and says which files took part."""

    def __init__(self, folders: Sequence[Path], read: Read) -> None:
        self.folders = list(folders)
        self._environment = _Environment(
            loader=_Loader(read),
            undefined=_Undefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,  # C source, not HTML
        )

    def render(
        self, name: str, variables: Mapping[str, Any], *, key: str
    ) -> tuple[str, frozenset[str]]:
        """The text, and the names of all templates it came from or looked for in vain."""
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
        except KernloomError:
            raise
        except Exception as error:  # whatever a template's own code raises is the user's to mend
            raise TemplateError(
                f"{type(error).__name__}: {error}", key=self._where(error, name)
            ) from None
        return text, self._environment.reached_from(name)

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


class _Loader(jinja2.BaseLoader):
    """Hands Jinja2 the very text that whoever reads templates goes by."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        found = self._read(template)
        if found is None:
            raise jinja2.TemplateNotFound(template)
        path, text = found
        return text, str(path), lambda: True


class _Environment(ImmutableSandboxedEnvironment):
    """Notes which templates each template asks for.

    What an imported template asks for is asked once per process, for Jinja2 keeps it as a module;
    so it is noted by the template that asks, not by the text that is being rendered.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._asked: dict[str, set[str]] = {}

    def join_path(self, template: str, parent: str) -> str:
        self._asked.setdefault(parent, set()).add(template)
        return template

    def reached_from(self, name: str) -> frozenset[str]:
        """The template and all that it leads to."""
        reached = {name}
        waiting = [name]
        while waiting:
            found = self._asked.get(waiting.pop(), set()) - reached
            reached |= found
            waiting.extend(found)
        return frozenset(reached)
