"""Config sections with digests, and caches keyed by these digests.

The points of a sweep share most of their config. A section computes the digest of its content once.
Results derived from one section are kept with it (`derive`); results derived from several are kept
by their digests in a `DigestCache`, which has an owner and a bound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from typing import Any, Generic, NoReturn, TypeVar

from kernloom.base.files import canonical_json

T = TypeVar("T")
V = TypeVar("V")
D = TypeVar("D", bound="Digested")

LIMIT = 4_000
"""Results per generation of a cache: enough for the points that are in progress."""
_LENGTH = 16


def digest_of(value: Any) -> str:
    """The digest of plain data, of a section, or of a dataclass of these."""
    if type(value) is Section:
        return value.digest
    if isinstance(value, str):
        return f"'{value}"  # no digest starts with a quote
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    own = getattr(value, "digest", None)
    if isinstance(own, str):
        return own
    if isinstance(value, Mapping):
        return _mapping_digest(value)
    if isinstance(value, (list, tuple)):
        return _hashed("[", *map(digest_of, value))
    if isinstance(value, (set, frozenset)):
        return _hashed("(", *sorted(map(digest_of, value)))
    return _hashed(canonical_json(value))


def _mapping_digest(mapping: Mapping[Any, Any]) -> str:
    """Digest in iteration order: the order of steps and stages has a meaning."""
    parts = (part for key, value in mapping.items() for part in (str(key), digest_of(value)))
    return _hashed("{", *parts)


def _hashed(*parts: str) -> str:
    """Hash with lengths, so that one text cannot equal several parts."""
    text = "".join([f"{len(part)}:{part}" for part in parts])
    data = text.encode(errors="surrogatepass")
    return hashlib.blake2b(data, digest_size=_LENGTH).hexdigest()


class _Derives:
    """Base of objects that cache results derived from them alone, for as long as they live."""

    __slots__ = ()

    def _kept(self) -> dict[Any, Any]:
        raise AttributeError("_kept")

    def derive(self, make: Callable[..., T], *more: Hashable) -> T:
        """The result of `make(self, *more)`, computed on the first call."""
        kept = self._kept()
        key = (make, *more) if more else make
        try:
            found: T = kept[key]
        except KeyError:
            found = kept[key] = make(self, *more)
        return found


class Section(dict[str, V], _Derives, Generic[V]):
    """An immutable mapping of a config; nested mappings are sections, too."""

    __slots__ = ("_derived", "_digest")

    @property
    def digest(self) -> str:
        try:
            return self._digest
        except AttributeError:
            self._digest: str = _mapping_digest(self)
            return self._digest

    def with_digest(self, digest: str) -> Section[V]:
        """Set the digest of a new section from a unique digest of its inputs."""
        self._digest = digest
        return self

    def _kept(self) -> dict[Any, Any]:
        try:
            return self._derived
        except AttributeError:
            self._derived: dict[Any, Any] = {}
            return self._derived

    def __reduce__(self) -> tuple[Any, ...]:
        return (Section, (dict(self),))

    def __copy__(self) -> Section[V]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Plain data: a caller that asks for a deep copy wants to change it."""
        plain: dict[str, Any] = as_plain(self)
        return plain

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a section of a config is not changed in place; make another one")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class Digested(_Derives):
    """Base of frozen dataclasses that are made from sections, with digests as well."""

    __slots__ = ("_derived", "_digest")
    _derived: dict[Any, Any]
    _digest: str
    # Slots, not fields: `vars` and `asdict` show only the config's own values.

    @property
    def digest(self) -> str:
        try:
            return self._digest
        except AttributeError:
            return self.with_digest(
                _hashed(
                    type(self).__name__,
                    *(digest_of(getattr(self, item.name)) for item in fields(self)),  # type: ignore[arg-type]
                )
            ).digest

    def with_digest(self: D, digest: str) -> D:
        """Set the digest of a new object from a unique digest of its inputs."""
        object.__setattr__(self, "_digest", digest)
        return self

    def _kept(self) -> dict[Any, Any]:
        try:
            return self._derived
        except AttributeError:
            object.__setattr__(self, "_derived", {})
            return self._derived

    def __getstate__(self) -> dict[str, Any]:
        # Derived results may not be picklable, and are cheap to compute again.
        return dict(self.__dict__)


def as_section(value: Any) -> Any:
    """Plain data with all of its mappings converted to sections."""
    if isinstance(value, Section):
        return value
    if isinstance(value, Mapping):
        return Section({key: as_section(item) for key, item in value.items()})
    if isinstance(value, list):
        return [as_section(item) for item in value]
    return value


def as_plain(value: Any) -> Any:
    """Sections as plain dicts and lists, for libraries that check types: YAML, OmegaConf."""
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    return value


class DigestCache:
    """Cache of results, keyed by the function that made them and the digests of its arguments.

    Two generations bound its size: when the newer one is full, the older one is dropped, so that
    frequently used results stay.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = LIMIT if limit is None else limit
        self._newer: dict[Any, Any] = {}
        self._older: dict[Any, Any] = {}

    def get(self, make: Callable[..., T], *parts: Any) -> T:
        """The result of `make(*parts)`, computed once for parts with these digests."""
        return self.by_key((make, *map(digest_of, parts)), lambda: make(*parts))

    def by_key(self, key: Hashable, make: Callable[[], T]) -> T:
        """The same with a unique key that the caller provides."""
        try:
            return self._newer[key]  # type: ignore[no-any-return]
        except KeyError:
            pass
        made: T = self._older.pop(key) if key in self._older else make()
        if len(self._newer) >= self._limit:
            self._older, self._newer = self._newer, {}
        self._newer[key] = made
        return made

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)
