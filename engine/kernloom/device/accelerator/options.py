"""Options of an accelerator's target: threads, a limit in virtual time, faults on purpose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from kernloom.base.errors import ConfigError, nearest
from kernloom.config.accelerator import Links, summary
from kernloom.config.convert import convert
from kernloom.config.limits import at_least, between
from kernloom.config.schema import Arch, Target

KEY = "target.options"
SLOWED = (*(item.name for item in fields(Links)), "hbm")
"""What can be slower,"""
MAX_FACTOR = 1_000_000
"""and by how much at most."""
SIMULATED = "sim"
"""The platform that these options are for; that of a vendor has its own."""


@dataclass(frozen=True)
class Options:
    """The options of a simulated accelerator."""

    threads: int = field(default=1, metadata=between(1, 64))
    """Threads that record kernels; virtual times are the same with any number."""
    timeout_ns: int = field(default=1_000_000_000_000, metadata=between(1, 1_000_000_000_000))
    """Virtual time after which an answer is no longer waited for."""
    hazards: bool = True
    """Whether transfers of tasks are compared with their declared regions and with each other."""
    dead: str = ""
    """PEs that answer nothing: `0.0.1`, or several with commas."""
    slow: str = ""
    """Links that are slower by a factor: `noc:4`, `hbm:2.5`, or several with commas."""
    lose: int = field(default=0, metadata=at_least(0))
    """Every so many-th message is lost; 0: none."""
    late: str = ""
    """`N:NS`: every N-th message is late by NS nanoseconds."""
    corrupt: int = field(default=0, metadata=at_least(0))
    """Every so many-th message arrives with a wrong bit; 0: none."""


_OWN = ("threads", "timeout_ns", "hazards")
"""Options that are no faults."""
_FORMS = {
    "dead": (r"\d+\.\d+\.\d+(,\d+\.\d+\.\d+)*", "SIP.CUBE.PE, or several with commas"),
    "slow": (r"\w+:[\d.]+(,\w+:[\d.]+)*", "LINK:FACTOR, or several with commas"),
    "late": (r"\d+:\d+", "N:NS"),
}


_HARMLESS = {"slow": r"\w+:0*1(\.0*)?(,\w+:0*1(\.0*)?)*", "late": r"0+:\d+|\d+:0+"}
"""Values of faults that change nothing."""
_FAULT = "faults."


def settings_of_options(target: Target) -> dict[str, str]:
    """The options of a target as settings of its platform; ConfigError for one it has not."""
    if target.machine.platform != SIMULATED:
        return {key: _text(value) for key, value in target.options.items()}
    options = convert(Options, _as_text(target.options), KEY)
    for name, (form, words) in _FORMS.items():
        value = getattr(options, name)
        if value and not re.fullmatch(form, value):
            raise ConfigError(f"{value!r} is no fault", key=f"{KEY}.{name}", hint=f"Write {words}.")
    _check_slow(options.slow)
    changed = {name: value for name, value in vars(options).items() if value or name in _OWN}
    return {
        name if name in _OWN else f"{_FAULT}{name}": _text(value) for name, value in changed.items()
    }


def _check_slow(slow: str) -> None:
    key = f"{KEY}.slow"
    for link, _, factor in (one.partition(":") for one in filter(None, slow.split(","))):
        if link not in SLOWED:
            raise ConfigError(f"there is no link '{link}'", key=key, hint=nearest(link, SLOWED))
        if not re.fullmatch(r"\d+(\.\d*)?", factor) or not 1 <= float(factor) <= MAX_FACTOR:
            hint = f"Allowed: 1 to {MAX_FACTOR}."
            raise ConfigError(f"{link} cannot be slower by {factor}", key=key, hint=hint)


def check_dead(target: Target, arch: Arch) -> None:
    """Refuse dead PEs that the topology does not have."""
    if target.machine.platform != SIMULATED or arch.topology is None:
        return
    topology = arch.topology
    counts = (topology.sips, topology.cubes, sum(topology.pes.values()))
    for pe in filter(None, str(target.options.get("dead", "")).split(",")):
        if any(int(at) >= there for at, there in zip(pe.split("."), counts, strict=True)):
            last = ".".join(str(there - 1) for there in counts)
            raise ConfigError(
                f"there is no PE {pe} (sip.cube.pe): {summary(arch)}",
                key=f"{KEY}.dead",
                hint=f"Allowed: 0.0.0 to {last}, each number by itself.",
            )


def faults_text(target: Target) -> str:
    """The faults that a target injects: `slow=noc:4 lose=7`; empty if none changes anything."""
    if target.machine.platform != SIMULATED:
        return ""
    found = {
        key.removeprefix(_FAULT): value
        for key, value in settings_of_options(target).items()
        if key.startswith(_FAULT)
    }
    return " ".join(
        f"{name}={value}"
        for name, value in found.items()
        if not re.fullmatch(_HARMLESS.get(name, ""), value)
    )


def _as_text(options: Mapping[str, object]) -> dict[str, object]:
    """The options, with numbers as text where text is meant."""
    return {
        name: str(value) if name in _FORMS and isinstance(value, int | float) else value
        for name, value in options.items()
    }


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
