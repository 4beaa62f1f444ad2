"""Every error that a user may see, with its exit code.

A message says what is wrong, where, what is allowed and what to do. The command line prints it
without a traceback; any exception that is not a KernloomError is a bug of Kernloom.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class KernloomError(Exception):
    """A failure that is explained to the user in one screen."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        message, hint = without_password(message), without_password(hint)
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.stage = ""
        """Name of the pipeline stage that raised it, if any."""

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def document(self, exit_code: int | None = None) -> dict[str, str | int]:
        """The error as JSON-ready data."""
        return {
            "kind": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.exit_code if exit_code is None else exit_code,
        }


class UsageError(KernloomError):
    """The command line itself is wrong."""

    exit_code = 2


class ConfigError(KernloomError):
    """A key or value of the configuration is wrong."""

    exit_code = 2

    def __init__(self, message: str, *, key: str = "", hint: str = "") -> None:
        super().__init__(f"{key}: {message}" if key else message, hint=hint)
        self.key = key
        self._said = message

    def below(self, file: str) -> ConfigError:
        """The same error with its key in a file: `native/x/program.yaml: kind`."""
        key = f"{file}: {self.key}" if self.key else file
        return ConfigError(self._said, key=key, hint=self.hint)


class UnsuitableError(ConfigError):
    """A workload that is not meant for the kind of target."""


class ExpressionError(ConfigError):
    """An expression that cannot be read or evaluated."""


class PipelineError(ConfigError):
    """The stages of a pipeline do not fit together."""


class TemplateError(ConfigError):
    """A template cannot be found, read or rendered."""


class UnavailableError(KernloomError):
    """A target, tool or device is not on this machine."""

    exit_code = 3


class StoreLostError(UnavailableError):
    """The store of results lost its name while it was used, with all that is in it."""


class BuildError(KernloomError):
    """The build itself broke down (not one artifact: those are recorded as failed)."""


class StoreError(KernloomError):
    """The store of results cannot be read or written."""


class DamagedError(StoreError):
    """The store of results is damaged, or no store at all; repairing may help."""


class DeviceError(KernloomError):
    """A device refused or failed an operation; `status` is the trial status it leads to."""

    def __init__(
        self, message: str, *, status: str = "crashed", stderr: str = "", code: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr
        self.code = code or status
        """The device's own name for the failure, if it is more specific: `use_after_free`."""


class Terminated(BaseException):
    """SIGTERM, as an exception that nothing but the `main` of a process catches."""


_SERVER = r"(postgres[\w+]*://[^:/\s]*:)(?!\*\*\*@).*(@)"
"""URL with a password. The password may contain anything: all is hidden up to the last @."""
_OTHER = r"(://[^:/\s]*:)(?!\*\*\*@)\S+(@)"
_OPTION = r"(?i)([?&][\w.%-]*(?:password|passwd)=)(?!\*\*\*(?:[&\s'\"]|$))[^&'\"\n]+"


def without_password(text: str) -> str:
    """The text with `***` for the password of every URL, safe to print and store."""
    if "://" not in text:
        return text
    text = re.sub(_OTHER, r"\1***\2", re.sub(_SERVER, r"\1***\2", text))
    return re.sub(_OPTION, r"\1***", text)


SHOWN = 40
"""Number of names that a hint lists."""


def nearest(name: str, known: Iterable[str], first: Iterable[str] = ()) -> str:
    """A hint that lists the allowed names and, if one is close, the name that was probably meant.

    Names in `first` are listed first, and stay in the list when there are too many.
    """
    import difflib

    options = list(dict.fromkeys([*first, *sorted(str(option) for option in known)]))
    close = [option for option in options if option.lower() == str(name).lower()]
    close = close or difflib.get_close_matches(str(name), options, n=1, cutoff=0.5)
    meant = f"Did you mean '{close[0]}'? " if close else ""
    shown = ", ".join(options[:SHOWN])
    if len(options) > SHOWN:
        shown += f" and {len(options) - SHOWN} more"
    return f"{meant}Allowed: {shown or '(none)'}."
