"""The process that holds an OpenCL driver and speaks the messages of the native runner.

`--list=UNITS` prints the machine's devices as JSON instead.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import mmap
import os
import socket
import sys
from pathlib import Path
from typing import Any

from kernloom.base.errors import KernloomError
from kernloom.device.messages import (
    HEADER,
    VERSION,
    Close,
    Exit,
    Header,
    Hello,
    MessageError,
    Response,
    Status,
    pack,
    unpack,
    unpack_header,
)
from kernloom.device.opencl.choice import Options, choose, in_place
from kernloom.device.supervisor import supervise

NOT_A_MESSAGE = 3
"""Exit code for input that is not a message, the same as the native runner's."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="kernloom.device.opencl.worker")
    parser.add_argument("--list", type=int)
    parser.add_argument("--options", default="{}")
    parser.add_argument("--channel", type=int)
    parser.add_argument("--window", type=int)
    parser.add_argument("--window-bytes", type=int)
    parser.add_argument("--scratch", type=int)
    given = parser.parse_args()
    if given.list is not None:
        print(json.dumps(_listed(given.list)))
        return 0
    # Before a driver is loaded, because drivers may start threads and processes.
    supervise()
    faulthandler.enable()
    os.fchdir(given.scratch)
    os.close(given.scratch)
    with (
        socket.socket(fileno=given.channel) as channel,
        mmap.mmap(given.window, given.window_bytes) as window,
    ):
        return _serve(channel, window, Options(**json.loads(given.options)))


def _listed(compute_units: int) -> dict[str, Any]:
    try:
        from kernloom.device.opencl.devices import has_platform, list_devices
    except ImportError as error:
        return {"problem": f"the Python package pyopencl is missing ({error})"}
    devices = [vars(found) for found, _ in list_devices(compute_units)]
    return {"devices": devices, "platform": has_platform(), "libraries": _libraries()}


def _libraries() -> list[str]:
    """The files mapped into this process, drivers included."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {line[line.index("/") :] for line in lines if "/" in line}
    return sorted(path for path in paths if ".so" in path and Path(path).is_file())


def _serve(channel: socket.socket, window: mmap.mmap, options: Options) -> int:
    session: Any = None
    problem = ""
    while True:
        try:
            received = _receive(channel)
        except MessageError as error:
            # The start of the next message is unknown.
            answer = Response(0, error.status, 0, str(error), ())
            channel.sendall(pack(answer, correlation=0, request=0))
            return NOT_A_MESSAGE
        if received is None:
            return Exit.DISCONNECTED
        header, data = received
        try:
            _, message = unpack(data)
            if header.addressees:
                raise MessageError("an OpenCL device has no parts to address")
        except MessageError as error:
            answer = Response(header.kind, error.status, 0, str(error), ())
            channel.sendall(pack(answer, correlation=header.correlation, request=header.request))
            continue
        if session is None and not problem:
            try:
                session = _session(window, options)
            except (ImportError, KernloomError) as error:
                problem = str(error)
        if problem:
            response = Response(message.KIND, Status.UNSUPPORTED, 0, problem, ())
        elif isinstance(message, Hello) and message.version != VERSION:
            text = f"this worker speaks version {VERSION}, not {message.version}"
            response = Response(message.KIND, Status.WRONG_VERSION, VERSION, text, ())
        else:
            response = session.answer(message)
        channel.sendall(pack(response, correlation=header.correlation, request=header.request))
        if isinstance(message, Close):
            return 0


def _session(window: mmap.mmap, options: Options) -> Any:
    from kernloom.device.opencl.devices import list_devices
    from kernloom.device.opencl.service import Service

    listed = list_devices(options.compute_units)
    found = [item for item, _ in listed]
    item, device = listed[choose(found, options)]
    return Service(device, window, in_place=in_place(item, options))


def _receive(channel: socket.socket) -> tuple[Header, bytes] | None:
    """The next message; None if the engine has ended."""
    start = _exactly(channel, HEADER.size)
    if start is None:
        return None
    header = unpack_header(start)
    rest = _exactly(channel, header.size - HEADER.size)
    return None if rest is None else (header, start + rest)


def _exactly(channel: socket.socket, nbytes: int) -> bytes | None:
    data = bytearray()
    while len(data) < nbytes:
        piece = channel.recv(nbytes - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


if __name__ == "__main__":
    sys.exit(main())
