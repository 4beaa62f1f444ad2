"""The process that renders templates: `python -m kernloom.plan.template_worker`.

A template is a program, and no sandbox limits its time and memory; resource limits of a process do.
The process opens no files: it requests each template from the engine by name.

Requests and answers are lines of JSON on stdin and stdout; a rendered text follows its answer
unquoted, since quoting it would cost a tenth of the rendering.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_S = 4
"""CPU time limit of one rendering; a shipped template takes milliseconds."""
MEMORY_MIB = 512
"""Address space limit of this process, including the interpreter."""
TEXT_MIB = 16
"""Size limit of a rendered source."""
TOO_LONG = f"takes more than {CPU_S} s of CPU time"
TOO_LARGE = f"needs more than {MEMORY_MIB} MiB of memory"
_AGAIN_S = 0.5
_SPARE_MIB = 64
"""Reserve for reporting that memory has run out."""
_LONGEST_PROBLEM = 2000
_GRACE_S = 2
"""Time after which a rendering that no signal handler could interrupt is killed."""


class _TooLongError(Exception):
    """Raised by the timer between two instructions of a template."""


class Channel:
    """Lines of JSON from and to the engine."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._requests = requests
        self._answers = answers

    def receive(self) -> Any:
        line = self._requests.readline()
        if not line:
            os._exit(0)  # the engine has ended
        return json.loads(line)

    def send(self, message: Any, text: str = "") -> None:
        """Send a message, followed by the text whose length in bytes the message states."""
        body = text.encode("utf-8", "surrogatepass")
        line = json.dumps({**message, "bytes": len(body)}).encode()
        self._answers.write(line + b"\n" + body)
        self._answers.flush()


class _Undefined(jinja2.StrictUndefined):
    """Reports an undefined name wherever it is used, also as a number."""

    __index__ = jinja2.StrictUndefined.__int__


class _Loader(jinja2.BaseLoader):
    """Requests templates from the engine, so that the engine knows the exact text rendered."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.paths: dict[str, str] = {}
        """Name -> file."""

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        self._channel.send({"read": template})
        found = self._channel.receive()
        if found is None:
            raise jinja2.TemplateNotFound(template)
        path, text = found
        self.paths[template] = path
        return text, path, lambda: True


class _Environment(ImmutableSandboxedEnvironment):
    """Records which templates each template loads.

    Jinja2 keeps an imported template as a module, so its own imports are loaded once per process.
    They are recorded for the importing template, not for the text being rendered.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._asked: dict[str, set[str]] = {}

    def join_path(self, template: str, parent: str) -> str:
        self._asked.setdefault(parent, set()).add(template)
        return template

    def reached_from(self, name: str) -> list[str]:
        """The template and all templates it loads, directly or not."""
        reached = {name}
        waiting = [name]
        while waiting:
            found = self._asked.get(waiting.pop(), set()) - reached
            reached |= found
            waiting.extend(found)
        return sorted(reached)


class Worker:
    """Renders templates on request, one at a time."""

    def __init__(self, channel: Channel) -> None:
        self._loader = _Loader(channel)
        self._environment = _Environment(
            loader=self._loader,
            undefined=_Undefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,  # C source, not HTML
        )

    def answer(self, name: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The text with all templates it loaded or tried to load, or an error.

        An answer with `ended` is the last one: after a memory error the process is unreliable.
        """
        try:
            text = self._environment.get_template(name).render(variables)
        except jinja2.TemplateSyntaxError as error:
            where = self.file(error.name or name)
            return {
                "problem": str(error.message)[:_LONGEST_PROBLEM],
                "where": f"{where}:{error.lineno}",
            }
        except jinja2.TemplateNotFound as error:
            return {"missing": str(error.name)[:_LONGEST_PROBLEM]}
        except _TooLongError as error:
            return {"problem": TOO_LONG, "where": self._where(error, name), "ended": True}
        except MemoryError as error:
            _limit(resource.RLIMIT_AS, (MEMORY_MIB + _SPARE_MIB) << 20)
            return {"problem": TOO_LARGE, "where": self._where(error, name), "ended": True}
        except Exception as error:  # errors in a template's own code are for its author
            problem = f"{type(error).__name__}: {error}"[:_LONGEST_PROBLEM]
            return {"problem": problem, "where": self._where(error, name)}
        if len(text) > TEXT_MIB << 20:
            problem = f"gives {len(text) >> 20} MiB of text, and at most {TEXT_MIB} are taken"
            return {"problem": problem, "where": self.file(name)}
        return {"text": text, "names": self._environment.reached_from(name)}

    def _where(self, error: BaseException, name: str) -> str:
        """File and line of the innermost template frame of a traceback."""
        files = set(self._loader.paths.values())
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename in files:
                return f"{frame.filename}:{frame.lineno}"
        return self.file(name)

    def file(self, name: str) -> str:
        """The file of a template; its name, if it has not been read."""
        return self._loader.paths.get(name, name)


def _too_long(number: int, frame: FrameType | None) -> NoReturn:
    raise _TooLongError


def _start_clock() -> None:
    """Limit CPU time: first an exception, which knows the line; SIGXCPU a little later."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = used.ru_utime + used.ru_stime
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + CPU_S + _GRACE_S, most))
    # Repeated, since an exception raised inside a destructor is lost.
    signal.setitimer(signal.ITIMER_PROF, CPU_S, _AGAIN_S)


def _limit(kind: int, wanted: int) -> None:
    _, most = resource.getrlimit(kind)
    allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(kind, (allowed, most))


def main() -> None:
    channel = Channel(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, MEMORY_MIB << 20)
    signal.signal(signal.SIGPROF, _too_long)
    worker = Worker(channel)
    while True:
        name, variables = channel.receive()
        _start_clock()
        try:
            answer = worker.answer(name, variables)
            signal.setitimer(signal.ITIMER_PROF, 0)
        except _TooLongError:
            signal.setitimer(signal.ITIMER_PROF, 0)
            answer = {"problem": TOO_LONG, "where": worker.file(name), "ended": True}
        channel.send(answer, answer.pop("text", ""))
        if answer.get("ended"):
            os._exit(0)


if __name__ == "__main__":
    main()
