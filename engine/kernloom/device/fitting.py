"""Whether an accelerator's arch and memory fit a workload; for every device with a topology."""

from __future__ import annotations

from collections.abc import Mapping

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import format_size
from kernloom.config.accelerator import pe_count, settings_of
from kernloom.config.schema import Arch

HBM = "arch.hbm.bytes"


def check_accelerator_arch(arch: Arch) -> None:
    """Refuse an arch that describes no accelerator."""
    if arch.topology is None:
        raise ConfigError(
            f"arch '{arch.name}' describes no accelerator: it has no topology",
            key="arch.topology",
            hint="Leave `arch` out: every target has one that fits.",
        )


def check_hbm(arch: Arch, nbytes: Mapping[str, int]) -> None:
    """Refuse tensors that do not fit the HBM of all PEs together."""
    check_accelerator_arch(arch)
    assert arch.topology is not None
    own, pes = int(settings_of(arch)["hbm.bytes"]), pe_count(arch.topology)
    needed, there = sum(nbytes.values()), own * pes
    if needed <= there:
        return
    largest = max(nbytes, key=lambda name: nbytes[name])
    raise ConfigError(
        f"the tensors take {_size(needed)}, '{largest}' alone {_size(nbytes[largest])}, but the "
        f"HBM of {pes} PEs is {_size(there)}, {_size(own)} each",
        key=HBM,
        hint="Take smaller sizes, or an arch with more memory or PEs.",
    )


def _size(nbytes: int) -> str:
    return f"{format_size(nbytes)} ({nbytes:,} bytes)"
