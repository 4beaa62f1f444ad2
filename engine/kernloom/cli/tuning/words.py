"""The words of `tune`: short names of search settings, and keys of the command itself."""

from __future__ import annotations

from collections.abc import Sequence

LONG_ONLY = ("name", "about", "seed")
"""Search settings without a short name; `seed` is that of the tensors' contents."""
SHORT = (
    *("strategy", "trials", "seconds", "patience", "batch", "objective", "steps", "memory"),
    *("screening", "racing", "leaders", "stages", "limit", "build_limit"),
)
"""Search settings that need no `search.` before them."""
KEYS = (*SHORT, "export", "space")
"""Keys of the command beside those of configs."""


def with_long_names(words: Sequence[str]) -> tuple[str, ...]:
    """The words with `search.` before the search settings."""
    return tuple(
        f"search.{word}" if word.partition("=")[0] in SHORT and "=" in word else word
        for word in words
    )


def take(words: Sequence[str], key: str) -> tuple[list[str], tuple[str, ...]]:
    """The values of a key of the command itself, and the other words."""
    prefix = f"{key}="
    found = [word.removeprefix(prefix) for word in words if word.startswith(prefix)]
    return found, tuple(word for word in words if not word.startswith(prefix))
