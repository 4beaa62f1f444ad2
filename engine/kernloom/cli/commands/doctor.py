"""Describe this machine: processor, memory, compilers, emulators, clocks, noise, and folders.

--install shows the packages that targets lack and installs them after you confirm (Debian and
Python packages). --yes confirms in advance; without a terminal it is required.
--calibrate measures the peak of each arch and the bandwidth of each level of memory, and stores
them for machines of this class; results then show the share of that roof they reach.
target=NAME describes a target instead: its variants, and the topology of an accelerator with the
provenance of its values. --probe adds the latency of reads and writes from a PE to HBM.

  kernloom doctor
  kernloom doctor --calibrate
  kernloom doctor target=a5 arch.topology.cubes=8
  kernloom doctor --install --yes
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from kernloom import __version__
from kernloom.base.errors import KernloomError, UnavailableError, UsageError
from kernloom.base.expressions import format_size
from kernloom.base.machine import machine_facts
from kernloom.base.places import Places
from kernloom.build.emulators import find_emulator
from kernloom.build.toolchains import DRIVER, detect
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.installing import Missing, find_missing, install
from kernloom.cli.invocation import Flag, Invocation, without_output
from kernloom.cli.progress import Progress
from kernloom.config.convert import convert
from kernloom.config.groups import groups_of
from kernloom.config.schema import Target, Toolchain
from kernloom.device.sandbox import sandbox_problem
from kernloom.measure.roof import Calibration, load_calibration
from kernloom.measure.statistics import median
from kernloom.report.calibrations import print_calibration
from kernloom.run.calibrating import calibrate, describe

USAGE = "[target=NAME [key=value ...]] [output=json]"
READS_CONFIGS = True
FLAGS = {
    "install": Flag("install what the targets lack, after showing it"),
    "calibrate": Flag("measure this machine's peak and bandwidth, and keep them"),
    "probe": Flag("with target=NAME: measure the latency from a PE to HBM, in virtual time"),
    "yes": Flag("with --install: do not ask; needed where there is no terminal to ask on"),
}
SPINS = 60
"""Number of short pieces of equal work, timed to estimate the load of this machine."""
NOISY = 0.05


def run(invocation: Invocation) -> int:
    rest = without_output(invocation.words)
    if any(word.startswith("target=") for word in rest):
        from kernloom.cli.target_report import report_target

        others = [name for name in invocation.flags if name != "probe"]
        if others:
            raise UsageError(f"--{others[0]} is about this machine, not about a target")
        return report_target(invocation)
    if rest:
        raise UsageError(
            f"'doctor' takes no '{rest[0]}'", hint="With target=NAME it describes a target."
        )
    if "probe" in invocation.flags:
        raise UsageError("--probe needs an accelerator", hint="kernloom doctor target=a5 --probe")
    if "yes" in invocation.flags and "install" not in invocation.flags:
        raise UsageError("--yes goes with --install")
    if "calibrate" in invocation.flags and "install" in invocation.flags:
        raise UsageError("--calibrate and --install are two errands: run doctor twice")
    places = places_of(invocation)
    if "install" in invocation.flags:
        return _install(invocation, find_missing(places))
    calibration = _calibration(invocation, places)
    document = {
        "kernloom": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "machine": machine_facts(),
        "toolchains": _toolchains(places),
        "emulators": _emulators(places),
        "clocks": {
            "wall_resolution_ns": time.get_clock_info("monotonic").resolution * 1e9,
            "cpu_resolution_ns": time.get_clock_info("thread_time").resolution * 1e9,
        },
        "noise": noise(),
        "huge_pages": _huge_pages(),
        "sandbox": {"available": not sandbox_problem(), "reason": sandbox_problem()},
        "calibration": describe(calibration, places),
        "places": {
            "project": str(places.project or ""),
            "build": str(places.build),
            "store": str(places.store),
            "graph": str(places.share / "SConstruct"),
        },
    }
    if invocation.for_people:
        _print(document, invocation)
        print_calibration(calibration, invocation.stdout)
    else:
        print(json.dumps(document), file=invocation.stdout)
    return 0


def _calibration(invocation: Invocation, places: Places) -> Calibration | None:
    """A new calibration if requested, else the stored one."""
    if "calibrate" not in invocation.flags:
        return load_calibration(
            places.calibrations,
            say=lambda note: print(f"kernloom: {note}", file=invocation.stderr),
        )
    return calibrate(places, Progress(invocation.stderr))


def _toolchains(places: Places) -> list[dict[str, Any]]:
    groups = groups_of(places)
    found = []
    for name in groups.options("toolchain"):
        entry: dict[str, Any] = {"name": name, "available": True, "version": "", "hint": ""}
        try:
            toolchain = convert(Toolchain, groups.read("toolchain", name), f"toolchain/{name}")
            detected = detect(toolchain, places.cache)
            path = detected.tools.get(DRIVER)
            version = detected.version if path else _driver_versions()
            entry |= {"version": version, "path": str(path or "")}
        except KernloomError as error:
            entry |= {"available": False, "reason": error.message, "hint": error.hint}
        found.append(entry)
    return found


def _emulators(places: Places) -> list[dict[str, Any]]:
    """Each emulator of a target once, with its targets."""
    groups = groups_of(places)
    found: dict[str, dict[str, Any]] = {}
    for name in groups.options("target"):
        try:
            data = groups.read("target", name).get("target", {})
            emulator = convert(Target, data, f"target/{name}").emulator
        except KernloomError:
            # `targets` reports the problem.
            continue
        if emulator is None:
            continue
        if emulator.program not in found:
            entry: dict[str, Any] = {"name": emulator.program, "available": True, "hint": ""}
            try:
                seen = find_emulator(emulator, places.cache)
                entry |= {"version": seen.version, "path": str(seen.path)}
            except UnavailableError as error:
                entry |= {"available": False, "reason": error.message, "hint": error.hint}
            found[emulator.program] = {"version": "", **entry, "targets": []}
        found[emulator.program]["targets"].append(name)
    return sorted(found.values(), key=lambda entry: str(entry["name"]))


def _driver_versions() -> str:
    """The devices of compilers that are part of a device's driver."""
    from kernloom.device.opencl.probe import devices

    return "; ".join(item.title for item in devices()) or "no device"


def _install(invocation: Invocation, missing: Missing) -> int:
    """Show what is missing, and install it."""
    commands = missing.commands()
    document: dict[str, Any] = {
        "targets": list(missing.targets),
        "packages": list(missing.packages),
        "requirements": list(missing.requirements),
        "installed": False,
        "problem": "",
    }
    if invocation.for_people:
        _show(missing, invocation)
    on_terminal = sys.stdin is not None and sys.stdin.isatty()
    unasked = bool(commands) and "yes" not in invocation.flags and not on_terminal
    if unasked:
        document["problem"] = (
            "nothing was installed: there is no terminal to ask on\n"
            "  Install without asking: kernloom doctor --install --yes"
        )
    elif commands and ("yes" in invocation.flags or _is_confirmed(invocation)):
        document["problem"] = install(missing, invocation.stderr)
        document["installed"] = not document["problem"]
    if not invocation.for_people:
        print(json.dumps(document), file=invocation.stdout)
    if not document["problem"]:
        return 0
    print(f"kernloom: error: {document['problem']}", file=invocation.stderr)
    return UsageError.exit_code if unasked else UnavailableError.exit_code


def _show(missing: Missing, invocation: Invocation) -> None:
    if not missing.commands():
        print("Nothing to install.", file=invocation.stdout)
        if missing.targets:
            names = ", ".join(missing.targets)
            print(
                f"Not available for other reasons: {names} (kernloom targets).",
                file=invocation.stdout,
            )
        return
    print(f"For the targets {', '.join(missing.targets)}:", file=invocation.stdout)
    for command in missing.commands():
        print(f"  {shlex.join(command)}", file=invocation.stdout, flush=True)


def _is_confirmed(invocation: Invocation) -> bool:
    print("Install them? [y/N] ", end="", file=invocation.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def noise() -> dict[str, float]:
    """Spread of the same short work by both clocks: (upper quartile - lower) / median."""
    wall, cpu = [], []
    for _ in range(SPINS):
        start_wall, start_cpu = time.perf_counter_ns(), time.thread_time_ns()
        sum(range(20_000))
        wall.append(float(time.perf_counter_ns() - start_wall))
        cpu.append(float(time.thread_time_ns() - start_cpu))
    return {"wall_spread": _spread(wall), "cpu_spread": _spread(cpu)}


def _spread(values: list[float]) -> float:
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return round((ordered[-quarter - 1] - ordered[quarter]) / median(ordered), 4)


def _huge_pages() -> str:
    """The setting of transparent huge pages: the word in brackets is in force."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")
    except OSError:
        return "unknown"
    return text.partition("[")[2].partition("]")[0] or text.strip()


def _print(document: dict[str, Any], invocation: Invocation) -> None:
    machine = document["machine"]
    spread = document["noise"]
    lines = [
        ("kernloom", f"{document['kernloom']}, Python {document['python']}"),
        ("processor", f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores"),
        (
            "memory",
            f"{format_size(machine['memory_available'])} free of "
            f"{format_size(machine['memory_total'])}",
        ),
        ("huge pages", document["huge_pages"]),
        ("sandbox", document["sandbox"]["reason"] or "kernels run in one (seccomp)"),
        ("load", " ".join(map(str, machine["load"]))),
        (
            "noise",
            f"wall clock ±{spread['wall_spread'] / 2:.1%}, "
            f"CPU clock ±{spread['cpu_spread'] / 2:.1%}",
        ),
        ("build", document["places"]["build"]),
        ("store", document["places"]["store"]),
        ("graph", document["places"]["graph"]),
    ]
    for tool in (*document["toolchains"], *document["emulators"]):
        found = f"{tool['version']} ({tool['path']})" if tool.get("path") else tool["version"]
        state = found if tool["available"] else tool["reason"]
        lines.append((tool["name"], state + (f". {tool['hint']}" if tool["hint"] else "")))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:{width}}  {value}", file=invocation.stdout)
    if spread["wall_spread"] > NOISY and os.getloadavg()[0] > 0.5:
        print(
            "This machine is busy: kernels of one thread are ranked by CPU time, which bears it; "
            "for several threads use measure.scheduling=fifo, or wait for quiet.",
            file=invocation.stdout,
        )
