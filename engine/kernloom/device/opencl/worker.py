"""The process that holds an OpenCL driver: it speaks the messages of the native runner.

`--list=UNITS` prints the machine's devices as JSON instead.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import mmap
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from kernloom.device.messages import (
    HEADER,
    VERSION,
    Close,
    Header,
    Hello,
    Message,
    MessageError,
    Response,
    Status,
    pack,
    unpack,
    unpack_header,
)
from kernloom.device.opencl.choice import Found, Options, choose
from kernloom.errors import KernloomError

_PDEATHSIG = 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="kernloom.device.opencl.worker")
    parser.add_argument("--list", type=int)
    parser.add_argument("--options", default="{}")
    parser.add_argument("--channel", type=int)
    parser.add_argument("--window", type=int)
    parser.add_argument("--window-bytes", type=int)
    given = parser.parse_args()
    if given.list is not None:
        print(json.dumps(_listed(given.list)))
        return 0
    faulthandler.enable()
    # Whatever a driver is doing then, it ends with the engine.
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    with (
        socket.socket(fileno=given.channel) as channel,
        mmap.mmap(given.window, given.window_bytes) as window,
    ):
        return _serve(channel, window, Options(**json.loads(given.options)))


def _listed(compute_units: int) -> dict[str, Any]:
    try:
        from kernloom.device.opencl.devices import list_devices
    except ImportError as error:
        return {"problem": f"the Python package pyopencl is missing ({error})"}
    return {"devices": [vars(found) for found, _ in list_devices(compute_units)]}


def _serve(channel: socket.socket, window: mmap.mmap, options: Options) -> int:
    session: Any = None
    problem = ""
    while True:
        try:
            received = _receive(channel)
        except MessageError as error:
            answer = Response(0, Status.INVALID, 0, str(error), ())
            channel.sendall(pack(answer, correlation=0, request=0))
            return 1
        if received is None:
            return 0
        header, message = received
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
    found: Sequence[Found] = [item for item, _ in listed]
    return Service(listed[choose(found, options)][1], window)


def _receive(channel: socket.socket) -> tuple[Header, Message] | None:
    """The next message; None when the engine is gone."""
    start = _exactly(channel, HEADER.size)
    if start is None:
        return None
    rest = _exactly(channel, unpack_header(start).size - HEADER.size)
    return None if rest is None else unpack(start + rest)


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
