"""Builder of plain data from YAML parser events, within bounds.

PyYAML's own composer recurses (in C, so deep nesting crashes the process) and its constructor
expands merges without a limit. This builder does neither: in one pass over the events it checks
depth and number of values, with aliases and merges expanded, before it makes a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_STRING = f"{_TAG}str"
_MAPPING = (None, "!", f"{_TAG}map")
_SEQUENCE = (None, "!", f"{_TAG}seq")
_LONGEST_NUMBER = 1000
"""Maximum length of a number; far below the limit of Python's int conversion."""
_REPLACED = {f"{_TAG}{name}" for name in ("bool", "float", "timestamp", "value")}
FLOAT = re.compile(
    r"^(?:[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)|[-+]?(?:\d+\.\d*|\.\d+)|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")


@dataclass(frozen=True)
class Bounds:
    """Limits of a document."""

    size: int
    """Size of the file in bytes."""
    values: int
    """Number of values; aliases and merges count fully expanded."""
    depth: int


class TooMuchError(Exception):
    """A document that exceeds its bounds."""


class _Resolver(yaml.resolver.Resolver):
    """YAML 1.1 without surprises: `off` is text, `1e-6` a number, a date is text."""


_Resolver.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.resolver.Resolver.yaml_implicit_resolvers.items()
}
_Resolver.add_implicit_resolver(f"{_TAG}bool", _BOOL, list("tTfF"))
_Resolver.add_implicit_resolver(f"{_TAG}float", FLOAT, list("-+0123456789."))
_PLAIN: dict[str, list[tuple[str, re.Pattern[str]]]] = _Resolver.yaml_implicit_resolvers
"""First character of an unquoted scalar -> the tags it may have."""


@dataclass(frozen=True)
class _Built:
    """A value with an anchor, with its size and height after alias expansion."""

    value: Any
    size: int = 1
    height: int = 0


@dataclass
class _Open:
    """A collection that is not complete yet."""

    value: dict[Any, Any] | list[Any]
    anchor: str | None
    size: int = 1
    height: int = 0
    seen: set[str] = field(default_factory=set)
    """Keys of a mapping as written."""
    key: Any = None
    waits_for_key: bool = True
    merged: list[Any] | None = None
    """Mappings under the merge key."""


_MERGED = object()
"""Sentinel for the key `<<`."""


def build(events: Iterable[yaml.Event], bounds: Bounds) -> Any:
    """The one document of a stream."""
    builder = _Builder(bounds)
    take: dict[type, Callable[[Any], None]] = {
        yaml.ScalarEvent: builder.scalar,
        yaml.AliasEvent: builder.alias,
        yaml.MappingStartEvent: builder.start,
        yaml.SequenceStartEvent: builder.start,
        yaml.MappingEndEvent: builder.end,
        yaml.SequenceEndEvent: builder.end,
        yaml.DocumentStartEvent: builder.start_document,
    }
    for event in events:
        handler = take.get(type(event))
        if handler:
            handler(event)
    return builder.document


class _Builder:
    """The open collections around the current event, and the values with anchors."""

    def __init__(self, bounds: Bounds) -> None:
        self.document: Any = None
        self._bounds = bounds
        self._open: list[_Open] = []
        self._anchors: dict[str, _Built | None] = {}
        """Anchor -> value; None while its collection is open."""
        self._documents = 0

    def start_document(self, event: yaml.Event) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _error("expected a single document, but found another", event)

    def alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise _error(f"found undefined alias '{event.anchor}'", event)
        built = self._anchors[event.anchor]
        if built is None:
            raise TooMuchError("is nested too deeply")
        self._put(built.value, event, built.size, built.height)

    def scalar(self, event: yaml.ScalarEvent) -> None:
        here = self._open[-1] if self._open else None
        text: str = event.value
        is_key = here is not None and here.waits_for_key and isinstance(here.value, dict)
        if here and is_key:
            if text in here.seen:
                raise _error(f"the key '{text}' stands here twice", event)
            here.seen.add(text)
        tag = event.tag
        if tag is None or tag == "!":
            tag = _tag_of(text) if event.implicit[0] else _STRING
        value: Any = text
        if tag is not _STRING:
            value = _MERGED if tag == _MERGE and is_key else _scalar(tag, text, event)
        if event.anchor:
            self._name(event.anchor, event)
            self._anchors[event.anchor] = _Built(text if value is _MERGED else value)
        self._put(value, event)

    def start(self, event: Any) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (_MAPPING if mapping else _SEQUENCE):
            raise _error(f"the tag '{event.tag}' is not allowed", event)
        if len(self._open) >= self._bounds.depth:
            raise TooMuchError("is nested too deeply")
        if event.anchor:
            self._name(event.anchor, event)
        self._open.append(_Open({} if mapping else [], event.anchor))

    def _name(self, anchor: str, event: yaml.Event) -> None:
        if anchor in self._anchors:
            raise _error(f"found duplicate anchor '{anchor}'", event)
        self._anchors[anchor] = None

    def end(self, event: yaml.Event) -> None:
        done = self._open.pop()
        value = done.value
        if done.merged is not None and isinstance(value, dict):
            # The first mapping of a list overrides later ones; the mapping's own keys override all.
            value = {key: v for one in reversed(done.merged) for key, v in one.items()} | value
        if done.anchor:
            self._anchors[done.anchor] = _Built(value, done.size, done.height)
        self._put(value, event, done.size, done.height)

    def _put(self, value: Any, event: yaml.Event, size: int = 1, height: int = 0) -> None:
        """Add a finished value to the collection around it."""
        if not self._open:
            self.document = value
            return
        here = self._open[-1]
        here.size += size
        if height >= here.height:
            here.height = height + 1
        if here.size > self._bounds.values:
            raise TooMuchError("holds too many values")
        if len(self._open) + height > self._bounds.depth:
            raise TooMuchError("is nested too deeply")
        if isinstance(here.value, list):
            here.value.append(value)
        elif here.waits_for_key:
            if isinstance(value, dict | list):
                raise _error("a key must be plain text", event)
            here.key, here.waits_for_key = value, False
        elif here.key is _MERGED:
            here.merged, here.waits_for_key = _mappings(value, event), True
        else:
            here.value[here.key] = value
            here.waits_for_key = True


def _mappings(value: Any, event: yaml.Event) -> list[Any]:
    """The mappings under a merge key: one, or several in a list."""
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in mappings):
        raise _error("expected a mapping or a list of mappings to merge", event)
    return mappings


def _tag_of(text: str) -> str:
    """The tag of an unquoted scalar."""
    for tag, pattern in _PLAIN.get(text[:1], ()):
        if pattern.match(text):
            return tag
    return _STRING


def _scalar(tag: str, text: str, event: yaml.Event) -> Any:
    if tag == _STRING:
        return text
    kind = tag.removeprefix(_TAG)
    if len(text) > _LONGEST_NUMBER:
        raise _error(f"a value of {len(text)} characters is too long for {kind}", event)
    match kind:
        case "null":
            return None
        case "bool" if _BOOL.match(text):
            return text.lower() == "true"
        case "int" | "float":
            node = yaml.ScalarNode(tag, text)
            try:
                if kind == "int":
                    return _CONSTRUCTOR.construct_yaml_int(node)
                return _CONSTRUCTOR.construct_yaml_float(node)
            except (ValueError, IndexError, OverflowError):
                raise _error(f"'{text}' is not a number", event) from None
        case "merge":
            return text
    raise _error(f"the tag '{tag}' is not allowed", event)


_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def _error(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, event.start_mark)
