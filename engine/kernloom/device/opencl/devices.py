"""The OpenCL devices of this machine, as their drivers list them."""

from __future__ import annotations

from typing import Any

import pyopencl as cl

from kernloom.device.opencl.choice import Found


def has_platform() -> bool:
    """Whether there is any platform, even without devices; none means that no driver is loaded."""
    try:
        return bool(cl.get_platforms())
    except cl.Error as error:
        return bool(error.code != cl.status_code.PLATFORM_NOT_FOUND_KHR)


def list_devices(compute_units: int = 0) -> list[tuple[Found, Any]]:
    """Every device, or its sub-devices of `compute_units` units each."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return []  # no driver at all
    found = []
    for platform in platforms:
        try:
            devices = platform.get_devices()
        except cl.Error:
            continue
        for device in devices:
            for part in _parts(device, compute_units):
                found.append((_described(platform, part), part))
    return found


def _parts(device: Any, compute_units: int) -> list[Any]:
    if not compute_units:
        return [device]
    equally = cl.device_partition_property.EQUALLY
    try:
        return list(device.create_sub_devices([equally, compute_units]))
    except cl.Error:
        return []  # too few units, or cannot be partitioned


def _described(platform: Any, device: Any) -> Found:
    return Found(
        platform=platform.name.strip(),
        version=platform.version.strip(),
        device=device.name.strip(),
        kind=device.version.strip(),
        driver=device.driver_version.strip(),
        units=int(device.max_compute_units),
        fp64=bool(device.double_fp_config),
        memory=int(device.global_mem_size),
        unified=bool(device.host_unified_memory),
    )
