"""Request of a recipe: the part that a person writes.

    recipe: 2
    about: what it shows, in a sentence
    run: workload=matmul case=large         # overrides, as after `kernloom run -m`
    sweep: {axes: {...}, where: [...]}      # as in configs/sweep/, or the name of one
    peers: [openblas]
    proxy: case=small measure=quick         # overrides for a first look
    variation: 10%                          # how far times may be from those of the lock
    claims: [vs openblas >= 0.9]

It may come from a stranger: its words set values and choose configs by name, and `replay` checks
what they compose to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.config.compose import Composer
from kernloom.config.overrides import Override, Overrides
from kernloom.config.settings import SweepSettings
from kernloom.recipe.claims import Claim, parse_claim
from kernloom.recipe.fields import LOCAL_KEYS

FORMAT = 2
KEYS = ("recipe", "about", "run", "sweep", "peers", "proxy", "variation", "claims")
DEFAULT_VARIATION = 0.10
DEFAULT_PROXY = ("case=small", "measure=quick")
MAX_CLAIMS = 1000
MAX_WORDS = 1000
_LOCAL = frozenset(LOCAL_KEYS) - {"sweep"}
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
REFERENCE = re.compile(
    rf"\$\{{(?!(?!(?:{'|'.join(_LOCAL)})\b)[A-Za-z_][\w.]*\}})",
    re.ASCII,
)
"""An interpolation that is no plain reference to a key of the experiment: it could call a resolver,
which may read the environment, or copy a setting of whoever runs the recipe, such as a store."""


@dataclass(frozen=True)
class Request:
    """The experiments of a recipe and its claims about them."""

    run: tuple[str, ...] = ()
    about: str = ""
    sweep: str | Mapping[str, Any] | None = None
    peers: tuple[str, ...] = ()
    proxy: tuple[str, ...] = DEFAULT_PROXY
    variation: float = DEFAULT_VARIATION
    claims: tuple[Claim, ...] = ()
    written: Mapping[str, Any] = field(default_factory=dict)
    """The document that it was read from."""


def new_request(run: Sequence[str], **more: Any) -> Request:
    """A request that the engine writes."""
    given = {"recipe": FORMAT, **more, "run": shlex.join(run)}
    order = {key: given[key] for key in KEYS if given.get(key)}
    return read_request(order, "recipe")


def read_request(data: Mapping[str, Any], where: str) -> Request:
    """The request in a document; every key is checked."""
    for key in data:
        if key not in KEYS:
            raise ConfigError(f"unknown key '{key}'", key=where, hint=nearest(str(key), KEYS))
    about = data.get("about", "")
    if not isinstance(about, str):
        raise ConfigError("expected a sentence", key=f"{where}: about")
    sweep = data.get("sweep")
    if sweep is not None and not isinstance(sweep, (str, Mapping)):
        raise ConfigError("expected a sweep or the name of one", key=f"{where}: sweep")
    check_references(sweep, f"{where}: sweep")
    claims = data.get("claims") or []
    if not isinstance(claims, list) or len(claims) > MAX_CLAIMS:
        raise ConfigError(f"expected a list of at most {MAX_CLAIMS}", key=f"{where}: claims")
    proxy = data.get("proxy")
    return Request(
        run=_words(data.get("run"), f"{where}: run"),
        about=about,
        sweep=sweep,
        peers=_names(data.get("peers"), f"{where}: peers"),
        proxy=DEFAULT_PROXY if proxy is None else _words(proxy, f"{where}: proxy"),
        variation=_share(data.get("variation"), f"{where}: variation"),
        claims=tuple(
            parse_claim(claim, key=f"{where}: claims[{number}]")
            for number, claim in enumerate(claims)
        ),
        written=dict(data),
    )


def overrides_of(request: Request, composer: Composer, *, proxy: bool = False) -> Overrides:
    """The overrides of a request; with `proxy`, those for a first look."""
    overrides = _parsed(request.run, composer)
    if isinstance(request.sweep, str):
        overrides = overrides.then(composer.choose({"sweep": request.sweep}))
    elif request.sweep:
        overrides = overrides.then(_sweep_overrides(request.sweep, composer))
    if request.peers:
        overrides = overrides.then(composer.choose({"measure.peers": list(request.peers)}))
    if proxy:
        quick = _parsed(request.proxy, composer)
        given = {override.key for override in quick}
        overrides = overrides.where(lambda o: o.key not in given).then(quick)
    return overrides


def _parsed(words: Sequence[str], composer: Composer) -> Overrides:
    for word in words:
        key = word.lstrip("+~").partition("=")[0]
        if key.startswith(("hydra.", "hydra/", "hydra@")) or "@" in key:
            raise ConfigError(f"'{word}' is a setting of Hydra's own, which a recipe cannot change")
        root = re.split(r"[./]", key)[0]
        if root in _LOCAL:
            raise ConfigError(
                f"'{word}' belongs to whoever runs the recipe",
                hint="A recipe sets workload, case, target, arch, toolchain, runtime, pipeline, "
                "select, measure, seed, limits and a sweep.",
            )
    return composer.parse(words, multirun=True)


def _sweep_overrides(sweep: Mapping[str, Any], composer: Composer) -> Iterator[Override]:
    known = SweepSettings.__dataclass_fields__
    for name, value in sweep.items():
        if name not in known:
            raise ConfigError(f"unknown key '{name}'", key="sweep", hint=nearest(str(name), known))
        if value is not None:
            yield from composer.choose({f"sweep.{name}": value})


def _words(value: Any, where: str) -> tuple[str, ...]:
    """Overrides, in one text as they are typed or in a list."""
    if value is None:
        return ()
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ConfigError(f"has a quote that is not closed: {error}", key=where) from None
    elif isinstance(value, list) and all(isinstance(word, str) for word in value):
        words = value
    else:
        raise ConfigError("expected overrides, key=value, in a text or a list", key=where)
    if len(words) > MAX_WORDS:
        raise ConfigError(f"has {len(words)} words; at most {MAX_WORDS} are read", key=where)
    for word in words:
        if word in ("-m", "--multirun"):
            raise ConfigError("leave -m out: several values are a sweep", key=where)
        if word.startswith("-") or ("=" not in word.lstrip("~") and not word.startswith("~")):
            raise ConfigError(f"'{word}' is not key=value", key=where)
    check_references(words, where)
    return tuple(words)


def check_references(value: Any, where: str) -> None:
    """Refuse interpolations that could read more than the config."""
    if isinstance(value, Mapping):
        check_references([*value, *value.values()], where)
    elif isinstance(value, (list, tuple)):
        for one in value:
            check_references(one, where)
    elif isinstance(value, str) and REFERENCE.search(value):
        raise ConfigError(
            f"'{value}' does more than name a key of the config",
            key=where,
            hint="Allowed: ${key.of.the.config}.",
        )


def _names(value: Any, where: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("expected a list of names", key=where)
    return tuple(names)


def _share(value: Any, where: str) -> float:
    """A share from `10%`."""
    if value is None:
        return DEFAULT_VARIATION
    found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ConfigError(f"{value!r} is no percentage", key=where, hint="For instance: 10%.")
    return float(found[1]) / 100


def explained(error: ConfigError | UsageError, where: str) -> ConfigError:
    """An error in the words of a request, with the file that they are in."""
    return ConfigError(f"{where}: {error.message}", hint=error.hint)
