"""Conversion of plain data to frozen dataclasses, with readable errors."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from kernloom.base.arithmetic import MAX_BITS
from kernloom.base.digest import DigestCache, Digested, Section
from kernloom.base.errors import ConfigError, nearest
from kernloom.config.renamed import nearest_key

T = TypeVar("T")
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a dataclass, prepared for conversion."""

    wanted: Any
    metadata: Mapping[str, Any]
    required: bool
    token: str
    """Unique name of the field across all classes; part of a cache key."""


@cache
def _fields_of(cls: type) -> dict[str, _Field]:
    hints = get_type_hints(cls)
    return {
        item.name: _Field(
            hints[item.name],
            item.metadata,
            item.default is MISSING and item.default_factory is MISSING,
            f"{cls.__module__}.{cls.__qualname__}.{item.name}",
        )
        for item in fields(cls)
    }


@cache
def _required_of(cls: type) -> tuple[str, ...]:
    return tuple(name for name, item in _fields_of(cls).items() if item.required)


def convert(cls: type[T], data: Any, key: str, cache: DigestCache | None = None) -> T:
    """An instance of the dataclass `cls` from a mapping; `key` is the mapping's config key.

    Nested sections that are in the cache are not converted again.
    """
    if type(data) is not dict and not isinstance(data, Mapping):
        raise ConfigError(f"expected keys and values, not {_shown(data)}", key=key)
    known = _fields_of(cls)  # type: ignore[arg-type]
    values = {}
    for name, value in data.items():
        item = known.get(name)
        if item is None:
            raise ConfigError(f"unknown key '{name}'", key=key, hint=nearest_key(str(name), known))
        if cache is not None and type(value) is Section:
            # Sections that the points of a sweep share are converted once.
            values[name] = cache.by_key(
                (item.token, value.digest), partial(_field, item, value, key, name, cache)
            )
        else:
            values[name] = _field(item, value, key, name, cache)
    for name in _required_of(cls):  # type: ignore[arg-type]
        if name not in values:
            raise ConfigError("is missing", key=f"{key}.{name}" if key else name)
    return cls(**values)


def _field(item: _Field, value: Any, key: str, name: str, cache: DigestCache | None) -> Any:
    where = f"{key}.{name}" if key else name
    result = _value(item.wanted, value, where, cache)
    if item.metadata:
        _check_range(result, item.metadata, where)
    if type(value) is Section and isinstance(result, (Digested, Section)):
        result.with_digest(value.digest)
    return result


def fields_at(cls: Any, names: Sequence[str]) -> frozenset[str]:
    """The keys that the schema allows below a path of keys; empty where any key is allowed."""
    wanted = cls
    for name in names:
        wanted = _dataclass_in(wanted)
        origin = get_origin(wanted)
        if is_dataclass(wanted) and isinstance(wanted, type):
            wanted = _fields_of(wanted)[name].wanted if name in _fields_of(wanted) else Any
        elif origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            wanted = get_args(wanted)[1]
        else:
            wanted = Any
    wanted = _dataclass_in(wanted)
    if isinstance(wanted, type) and is_dataclass(wanted):
        return frozenset(_fields_of(wanted))
    return frozenset()


def _dataclass_in(wanted: Any) -> Any:
    """The dataclass in a type, also if it is one member of a union."""
    if get_origin(wanted) in (Union, types.UnionType):
        return next((option for option in get_args(wanted) if is_dataclass(option)), Any)
    return wanted


def _value(wanted: Any, value: Any, key: str, cache: DigestCache | None) -> Any:
    if wanted is Any:
        return value
    if value == "???":
        raise ConfigError("must be given: it has no default", key=key)
    origin = get_origin(wanted)
    if origin is Literal:
        allowed = get_args(wanted)
        if isinstance(value, bool) and allowed == ("on", "off"):
            return "on" if value else "off"  # YAML reads a bare `off` as false
        if value not in allowed:
            raise ConfigError(
                f"{_shown(value)} is not allowed", key=key, hint=nearest(value, allowed)
            )
        return value
    if origin in (Union, types.UnionType):
        return _one_of(get_args(wanted), value, key, cache)
    if origin is tuple or (origin is not None and issubclass(origin, Mapping)):
        make: Callable[..., Any] = _collection
    elif is_dataclass(wanted):
        make = convert
    else:
        return _scalar(wanted, value, key)
    return make(wanted, value, key, cache)


def _collection(wanted: Any, value: Any, key: str, cache: DigestCache | None) -> Any:
    if get_origin(wanted) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"expected a list, not {_shown(value)}", key=key)
        element = get_args(wanted)[0]
        return tuple(_value(element, item, f"{key}[{i}]", cache) for i, item in enumerate(value))
    if not isinstance(value, Mapping):
        raise ConfigError(f"expected keys and values, not {_shown(value)}", key=key)
    element = get_args(wanted)[1]
    return Section(
        {str(name): _value(element, item, f"{key}.{name}", cache) for name, item in value.items()}
    )


def _one_of(options: tuple[Any, ...], value: Any, key: str, cache: DigestCache | None) -> Any:
    if value is None and type(None) in options:
        return None
    for option in options:
        if option in _NAMES and type(value) is option:
            # Numbers in the place of an expression may be as long as in expressions; sizes are
            # checked later.
            return _fitting(value, key, MAX_BITS)
    others = [option for option in options if option is not type(None)]
    if float in others and type(value) is int:
        return _as_float(value, key)
    if len(others) == 1:
        return _value(others[0], value, key, cache)
    lists = [option for option in others if get_origin(option) is tuple]
    if lists and isinstance(value, (list, tuple)):
        return _collection(lists[0], value, key, cache)
    if isinstance(value, (list, tuple)) and value and set(_NAMES) <= set(others):
        listed = ",".join(map(str, value))
        raise ConfigError(
            f"expected one value, not the list {_shown(value)}",
            key=key,
            hint=f"Where several are allowed they are one text, in quotes: '{key}=\"{listed}\"'.",
        )
    allowed = " or ".join(
        "a list" if option in lists else _NAMES.get(option, str(option)) for option in others
    )
    raise ConfigError(f"expected {allowed}, not {_shown(value)}", key=key)


def _fitting(value: Any, key: str, bits: int = 63) -> Any:
    """Refuse integers over 64 bits: messages, C and the store hold no more."""
    if type(value) is int and value.bit_length() > bits:
        hint = f"Allowed: whole numbers from {-(2**63)} to {2**63 - 1}."
        raise ConfigError(f"{_shown(value)} is too large", key=key, hint=hint)
    return value


def _as_float(value: int, key: str) -> float:
    return float(_fitting(value, key))


def _scalar(wanted: Any, value: Any, key: str) -> Any:
    if type(value) is wanted:
        return _fitting(value, key)
    if wanted is float and type(value) is int:
        return _as_float(value, key)
    raise ConfigError(f"expected {_NAMES.get(wanted, wanted)}, not {_shown(value)}", key=key)


def _check_range(value: Any, metadata: Mapping[str, Any], key: str) -> None:
    minimum = metadata.get("minimum")
    if minimum is None or value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{value} is not a finite number", key=key)
    if value < minimum:
        raise ConfigError(f"{value} is too small", key=key, hint=f"Allowed: {minimum} or more.")
    maximum = metadata.get("maximum")
    if maximum is not None and value > maximum:
        raise ConfigError(f"{value} is too large", key=key, hint=f"Allowed: {maximum} or less.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
