"""Latency of an accelerator's memory, as its own DMA engines see it, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from kernloom.base.errors import BuildError, UnavailableError
from kernloom.config.accelerator import Topology, settings_of
from kernloom.config.schema import Arch, Experiment
from kernloom.device.contract import DeviceSetup, require
from kernloom.device.devices import DEVICES
from kernloom.device.messages import Addressee
from kernloom.run.assembly import Assembly

SIZES = (64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10)
"""Bytes of a probe, if they fit the SRAM."""
HERE = Addressee(0, 0, 0)
"""The PE whose DMA engine copies."""


def distances(topology: Topology) -> Iterator[tuple[str, Addressee]]:
    """Where the memory is, nearest first, as far as the topology has such places."""
    yield "own PE", HERE
    if sum(topology.pes.values()) > 1:
        yield "own cube", Addressee(0, 0, 1)
    if topology.cubes > 1:
        yield "other cube", Addressee(0, topology.cubes - 1, 0)
    if topology.sips > 1:
        yield "other sip", Addressee(topology.sips - 1, 0, 0)


def probe(assembly: Assembly, experiment: Experiment) -> list[dict[str, Any]]:
    """Nanoseconds of a read and a write of each size at each distance, with a warm TLB."""
    from kernloom.device.accelerator.session import SRAM_BASE, AcceleratorSession

    arch = experiment.arch
    assert arch.topology is not None
    found: list[dict[str, Any]] = []
    with _session(assembly, experiment) as session:
        if not isinstance(session, AcceleratorSession):
            raise UnavailableError(f"device '{experiment.target.device}' has no PEs to probe")

        def time_ns(source: int, destination: int, nbytes: int) -> float:
            # The first one fills the TLB.
            for _ in range(2):
                (answer,) = session.dma_probe(source, destination, nbytes, [HERE])
            return answer.response.value / 1000

        for name, owner in distances(arch.topology):
            for nbytes in sizes(arch):
                with session.place(nbytes, pes=[owner], label="probe") as tensor:
                    address = tensor.buffer.address
                    found.append(
                        {
                            "distance": name,
                            "bytes": nbytes,
                            "read_ns": time_ns(address, SRAM_BASE, nbytes),
                            "write_ns": time_ns(SRAM_BASE, address, nbytes),
                        }
                    )
    return found


def sizes(arch: Arch) -> list[int]:
    settings = settings_of(arch)
    most = min(int(settings["sram.bytes"]), int(settings["hbm.bytes"]))
    return [size for size in SIZES if size <= most] or [most]


def _session(assembly: Assembly, experiment: Experiment) -> Any:
    """A session with the programs of the experiment, which are built if need be."""
    programs = assembly.programs(experiment)
    with closing(assembly.ahead):
        outcomes = assembly.builder(experiment).build(programs.values())
    for outcome in outcomes.values():
        if not outcome.ok:
            raise BuildError(f"{outcome.source} does not compile:\n{outcome.message.strip()}")
    paths = {role: outcomes[program.key].path for role, program in programs.items()}
    target = experiment.target
    device = DEVICES.get(target.device, key="target.device").from_setup(
        DeviceSetup(paths, target, experiment.arch, runtime=experiment.runtime)
    )
    require(device, "dma")
    return device.open(timeout=experiment.timeout)
