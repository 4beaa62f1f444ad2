"""Resolvers in `${name:arguments}`: OmegaConf's own, Hydra's, and those of installed packages.

Packages add resolvers by entry point (group kernloom.resolvers), and in no other way: config files
and recipes can only name them. A resolver is a function of its arguments, called once per command
for the same arguments.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import canonical_json
from kernloom.base.lookup import MISSING
from kernloom.base.registry import Registry
from kernloom.base.streams import stdout_to_stderr
from kernloom.config.plain_data import problem_with
from kernloom.config.selects import KEY, literal

RESOLVERS: Registry[Callable[..., Any]] = Registry("resolver", {}, group="kernloom.resolvers")
_CALL = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*:")
NODE = re.compile(rf"\$\{{({KEY})\}}")
"""A reference to another key, by its full name."""
_READ_NOTHING = ("oc.env", "oc.decode", "now", "python_version")
"""Shipped resolvers whose result depends on their arguments and not on the config."""
_SHIPPED = ("oc.select", "oc.create", "oc.dict.keys", "oc.dict.values", "oc.deprecated")
_HYDRA_CONFIG = "hydra"
_HYDRA = ("now", "python_version")
_SEES_CONFIG = {"_parent_", "_node_", "_root_"}
_ARGUMENT = r"(?:\$\{[A-Za-z_][\w.]*\}|[\w-]+)"
_SIMPLE_CALL = re.compile(rf"\$\{{([A-Za-z_][\w.]*):({_ARGUMENT}(?:,{_ARGUMENT})*)\}}", re.ASCII)
"""A call with references, numbers and words: OmegaConf's parser takes a millisecond."""
_MAX_KEPT = 10_000
_CONFIG_KEY = "__text"


class ResolverError(Exception):
    """A resolver of a package failed; OmegaConf wraps it in errors of its own."""

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))
        self.error = error


def reads_no_config(text: str) -> bool:
    """Whether every resolver in a text depends on its arguments only, and every reference is to a
    key by its full name: then the text can be evaluated without the rest of the config."""
    names = _CALL.findall(text)
    rest = _CALL.sub("", NODE.sub("", text))
    return (
        bool(names)
        and "${" not in rest
        and "\\" not in text
        and all(name in _READ_NOTHING or RESOLVERS.knows(name) for name in names)
    )


def check_resolvers(text: str, key: str) -> None:
    """Make the resolvers in a text known to OmegaConf; refuse unknown ones."""
    for name in _CALL.findall(text):
        if name == _HYDRA_CONFIG:
            raise ConfigError(
                f"'{text}' has no value: an experiment does not depend on Hydra's own settings",
                key=key,
                hint="Refer to a key of the config, such as ${workload.name}.",
            )
        if name in (*_READ_NOTHING, *_SHIPPED):
            _register_hydra([name])
        elif RESOLVERS.knows(name):
            _register(name, key)
        else:
            known = (*_READ_NOTHING, *_SHIPPED, *RESOLVERS.names())
            raise ConfigError(
                f"unknown resolver '{name}' in {text!r}",
                key=key,
                hint=f"{nearest(name, known)} Installed packages add others by entry point: the "
                f"group is {RESOLVERS.group}.",
            )


def register_all() -> None:
    """Make the resolvers of all installed packages known to OmegaConf; broken ones, and those with
    a name of OmegaConf's or Hydra's own, are left out."""
    for name in RESOLVERS.names():
        if name in (*_READ_NOTHING, *_SHIPPED, _HYDRA_CONFIG):
            continue
        # A broken resolver is reported where it is used.
        with contextlib.suppress(ConfigError):
            _register(name, "")


def evaluate(text: str, references: Mapping[str, Any], key: str) -> Any:
    """The value of a text that `reads_no_config`, with the values of its references."""
    check_resolvers(text, key)
    simple = _simple_call(text, references)
    if simple:
        name, arguments = simple
        try:
            return _wrapped[name](*arguments)
        except ResolverError as error:
            raise resolving_error(error, key) from None
    # The environment may change while a program runs.
    state = [*os.environ.items()] if "oc.env" in text else []
    known = (text, canonical_json([dict(references), state]))
    if known not in _evaluated or "now" in text:
        if len(_evaluated) >= _MAX_KEPT:
            _evaluated.clear()
        _evaluated[known] = _evaluate_by_omegaconf(text, references, key)
    return _evaluated[known]


_evaluated: dict[tuple[str, str], Any] = {}
"""Text, its references' values and the environment -> its value."""


def _simple_call(text: str, references: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
    """The package's resolver and the arguments of a call that needs no parser."""
    match = _SIMPLE_CALL.fullmatch(text)
    if not match or match[1] not in _wrapped:
        return None
    arguments: list[Any] = []
    for argument in match[2].split(","):
        node = NODE.fullmatch(argument)
        if node:
            arguments.append(references[node[1]])
            continue
        value = literal(argument)
        if value is MISSING:
            return None
        arguments.append(value)
    return match[1], arguments


def _evaluate_by_omegaconf(text: str, references: Mapping[str, Any], key: str) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config: dict[str, Any] = {}
    for reference in sorted(references):
        node, names = config, reference.split(".")
        for name in names[:-1]:
            node = node.setdefault(name, {})
        node.setdefault(names[-1], references[reference])
    try:
        found = OmegaConf.to_container(
            OmegaConf.create({**config, _CONFIG_KEY: text}), resolve=True
        )
    except OmegaConfBaseException as error:
        raise resolving_error(error, key) from None
    assert isinstance(found, dict)
    return found[_CONFIG_KEY]


def resolving_error(error: BaseException, key: str = "") -> ConfigError:
    """An error of OmegaConf in the words of this project."""
    failure = failed_resolver(error)
    where = key or str(getattr(error, "full_key", "") or "")
    if failure:
        return ConfigError(failure.message, key=failure.key or where, hint=failure.hint)
    return ConfigError(str(error).splitlines()[0], key=where)


def failed_resolver(error: BaseException | None) -> ConfigError | None:
    """The error of a package's resolver among the causes of an error."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, ResolverError):
            return error.error
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None


def _register_hydra(names: Iterable[str]) -> None:
    from omegaconf import OmegaConf

    if any(name in _HYDRA and not OmegaConf.has_resolver(name) for name in names):
        from hydra.core.utils import setup_globals

        setup_globals()


def _register(name: str, key: str) -> None:
    from omegaconf import OmegaConf

    function = RESOLVERS.get(name, key=key)
    if name not in _wrapped or not OmegaConf.has_resolver(name):
        OmegaConf.register_new_resolver(name, _checked(name, function, key), replace=True)


_wrapped: dict[str, Callable[..., Any]] = {}
"""Name of a resolver -> our function around the package's. Packages do not change while a
process lives."""


def _checked(name: str, function: Callable[..., Any], key: str) -> Callable[..., Any]:
    """The function with its errors explained, its result checked, and earlier results kept."""
    package = RESOLVERS.distribution(name) or "an installed package"
    _check_function(name, function, package, key)
    kept: dict[str, Any] = {}

    def resolve(*arguments: Any) -> Any:
        plain = [_as_plain(argument) for argument in arguments]
        given = canonical_json(plain)
        if given in kept:
            return kept[given]
        shown = f"{name}({', '.join(map(repr, plain))})"
        try:
            with stdout_to_stderr():
                result = function(*plain)
        except (Exception, SystemExit) as error:  # whatever the code of another package raises
            problem = f"the resolver {shown} failed: {type(error).__name__}: {_text_of(error)}"
            hint = f"Correct its arguments; the resolver is code of {package}."
            raise ResolverError(ConfigError(problem, hint=hint)) from None
        if problem := problem_with(result):
            problem = f"the resolver {shown} returned {problem}"
            hint = f"Allowed: text, numbers, true, false, null, lists and maps of them ({package})."
            raise ResolverError(ConfigError(problem, hint=hint))
        if len(kept) < _MAX_KEPT:
            kept[given] = result
        return result

    _wrapped[name] = resolve
    return resolve


def _check_function(name: str, function: Any, package: str, key: str) -> None:
    problem = ""
    if not callable(function):
        problem = f"is a {type(function).__name__}, not a function"
    else:
        try:
            special = _SEES_CONFIG & {*inspect.signature(function).parameters}
        except (TypeError, ValueError):
            special = set()  # a built-in function without a signature
        if special:
            problem = f"takes {', '.join(sorted(special))}, but it gets its arguments only"
    if problem:
        raise ConfigError(
            f"the resolver '{name}' {problem}", key=key, hint=f"It is code of {package}."
        )


def _as_plain(value: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:  # of the package, too
        return f"its message cannot be shown ({type(other).__name__})"
