"""Candidates about stored trials: filters, keys and saved baselines."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from kernloom.base.places import Places
from kernloom.cli.completion.candidates import Candidate, chosen_from
from kernloom.cli.completion.overrides import OverrideCompleter

_PATIENCE_S = 0.1


def filters(typed: str, overrides: OverrideCompleter) -> list[Candidate]:
    """Candidates for a filter of `results`: a column, a key of the config, or its value."""
    from kernloom.store.keys import COLUMNS

    key, equals, value = typed.partition("=")
    if equals:
        found = _values(key, value, overrides)
        return [one.after(f"{key}=") for one in found]
    columns = [Candidate(f"{column}=", "more") for column in COLUMNS]
    return [*columns, *overrides.candidates(typed)]


def _values(key: str, typed: str, overrides: OverrideCompleter) -> list[Candidate]:
    from kernloom.config.schema import STATUSES

    match key:
        case "status":
            return chosen_from(STATUSES, typed)
        case "verified":
            return chosen_from(("true", "false"), typed)
        case "variant":
            return overrides.values("target.variant", typed)
        case "stage":
            return chosen_from(overrides.config.section(("pipeline", "stages")), typed)
        case "provider":
            return chosen_from(overrides.config.value(("select", "providers")) or (), typed)
    return overrides.values(key, typed)


def keys(typed: str, *, several: bool, signed: bool = False) -> list[Candidate]:
    """Candidates for the keys that trials are sorted, grouped and shown by."""
    from kernloom.base.gauges import USUAL_METRICS
    from kernloom.store.keys import COLUMNS, SOURCE

    names = dict.fromkeys((*COLUMNS, *USUAL_METRICS, SOURCE))
    sign = "-" if signed and typed.startswith("-") else ""
    found = chosen_from(names, typed.removeprefix(sign) if several else "")
    return [one.after(sign) for one in found]


def baselines(words: list[str], overrides: OverrideCompleter, places: Places | None) -> list[str]:
    """The names of saved baselines in the store that the words choose, if it is a file."""
    file = next((word[11:] for word in reversed(words) if word.startswith("store.path=")), "")
    settings = overrides.config.section(("store",))
    if not file and (settings.get("url") or settings.get("name") == "postgres"):
        return []  # A server may not answer.
    place = file or settings.get("path") or (places.store if places else "")
    return _saved_names(Path(str(place))) if place else []


def _saved_names(store: Path) -> list[str]:
    if not store.is_file():
        return []
    # Without locks and files beside it; sees what was written before the last checkpoint.
    address = f"{store.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE_S)) as connection:
            rows = connection.execute("SELECT DISTINCT name FROM baselines ORDER BY name")
            return [str(name) for (name,) in rows]
    except sqlite3.Error:
        return []
