"""Requests to a runner process and their responses, which arrive in the order of the requests."""

from __future__ import annotations

import contextlib
import struct
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from kernloom.base.errors import DeviceError
from kernloom.device import messages
from kernloom.device.connection import Connection
from kernloom.device.contract import Session
from kernloom.device.messages import (
    Addressee,
    Close,
    Exit,
    Hello,
    KernelLaunch,
    Message,
    MessageError,
    Response,
    Status,
)
from kernloom.device.process import ending

CLOSE_SECONDS = 5.0
CRASH_SECONDS = 2.0
"""Seconds a runner may take to exit after it closes its socket: a crashed one has exited
already."""
MAX_IN_FLIGHT = 256
"""Requests sent before their responses are received; with more, the socket buffers could fill and
both sides would wait for each other."""
SHOWN = 8
"""Failed parts of a device that an error names."""
LONGEST_TIMEOUT_S = 1e8
"""The longest timeout in seconds that clocks can represent."""
_TRIAL_STATUS = {
    Status.OUT_OF_MEMORY: "out_of_memory",
    Status.OUT_OF_BOUNDS: "out_of_bounds",
    # An undefined symbol, which the linker accepts in a shared library.
    Status.LOAD_FAILED: "build_failed",
    Status.UNAVAILABLE: "unavailable",
    Status.NO_ANSWER: "timeout",
    Status.DAMAGED: "crashed",
    Status.HAZARD: "wrong",
    Status.FORBIDDEN: "refused",
    Status.CHANGED_STATE: "wrong",
}
# After an out-of-bounds access nothing in that process can be trusted.
_FATAL = (Status.OUT_OF_BOUNDS, Status.UNAVAILABLE, Status.FORBIDDEN)


@dataclass(frozen=True)
class Answer:
    """The response of one addressee."""

    responder: Addressee
    response: Response


@dataclass(frozen=True)
class Posted:
    """A request whose responses are outstanding."""

    request: int
    name: str
    responses: int = 1


class Conversation(Session):
    """A session whose operations are requests; after a fatal failure it stays ended."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._operations = 0
        self._requests = 0
        self._busy = False
        self._ended: DeviceError | None = None
        self._unsent: list[bytes] = []
        self._posted: list[Posted] = []
        self._names: dict[int, str] = {}
        """Handle -> name of each loaded kernel that has one, for errors."""
        # Ends the session also when it is garbage collected, or open when the engine exits.
        self._finalizer = weakref.finalize(self, _release, connection)
        # Answered together with the first request, which saves a round trip.
        self._post([Hello(messages.VERSION)])
        self._send(timeout)

    def close(self) -> None:
        if self._ended is None:
            self._ended = DeviceError("the session is closed", status="refused", code="ended")
            # In the middle of a request the runner would not read a Close message.
            if not self._busy:
                with contextlib.suppress(OSError):
                    self._post([Close()])
                    self._send(CLOSE_SECONDS)
                    self._connection.receive_rest(self._deadline(CLOSE_SECONDS))
                    self._connection.process.wait(CLOSE_SECONDS)
            self.left_processes = self._connection.end() == Exit.LEFTOVERS
        self._finalizer()

    def exchange(
        self, message: Message, operation: int | None = None, *, timeout: float | None = None
    ) -> Response:
        """Send one request and wait for its response; raises if the status is not OK."""
        return self.exchange_all([message], operation, timeout=timeout)[0]

    def exchange_all(
        self,
        batch: Sequence[Message],
        operation: int | None = None,
        *,
        timeout: float | None = None,
    ) -> list[Response]:
        """Send requests together and wait for their responses; raises for the first that is not OK.

        `timeout` applies to all of them together.
        """
        self._check_open()
        seconds = self._timeout if timeout is None else timeout
        responses: list[Response] = []
        for start in range(0, len(batch), MAX_IN_FLIGHT):
            part = batch[start : start + MAX_IN_FLIGHT]
            self._post(part, operation)
            answers = self._collect(seconds)[-len(part) :]
            responses += [answer.response for answer in answers]
        return responses

    def exchange_each(
        self,
        message: Message,
        addressees: Sequence[Addressee],
        responses: int,
        *,
        timeout: float | None = None,
    ) -> list[Answer]:
        """Send one request to several parts of the device and wait for `responses` answers, in the
        order of the parts. One failure fails the operation: the error names it, and how many parts
        failed and succeeded."""
        self._check_open()
        seconds = self._timeout if timeout is None else timeout
        self._settle()
        self._post([message], addressees=addressees, responses=responses)
        return self._collect(seconds)

    def _check_open(self) -> None:
        if self._ended is not None:
            raise DeviceError(
                f"the session has ended: {self._ended.message}",
                status=self._ended.status,
                stderr=self._ended.stderr,
                code="ended",
            )

    def _settle(self) -> None:
        """Wait for all outstanding responses, after which the window is free."""
        if self._posted:
            self._collect(self._timeout)

    def _collect(self, seconds: float) -> list[Answer]:
        """The responses to all posted requests, in order."""
        self._send(seconds)
        deadline = self._deadline(seconds)
        posted, self._posted = self._posted, []
        expected = [one for one in posted for _ in range(one.responses)]
        answers: list[Answer] = []
        problem: DeviceError | None = None
        self._busy = True
        for at, one in enumerate(expected, 1):
            try:
                header, message = self._connection.receive(deadline, len(expected) - at)
                if not isinstance(message, Response) or header.request != one.request:
                    raise MessageError(f"a {type(message).__name__} to request {header.request}")
            except (EOFError, ConnectionError, TimeoutError, MessageError) as error:
                missing = self._missing(one.name, error, seconds)
                problem = problem or missing
                break
            answers.append(Answer(Addressee(header.sip, header.cube, header.pe), message))
            if message.status != Status.OK and problem is None:
                # Later requests of the batch assumed that this one succeeds.
                problem = self._problem(message)
                if self._ended is not None:
                    break
        self._busy = False
        if problem:
            raise _with_the_others(problem, posted[-1], answers) from None
        return answers

    def _operation(self) -> int:
        self._operations += 1
        return self._operations

    def _deadline(self, seconds: float) -> float:
        return time.monotonic() + min(seconds, LONGEST_TIMEOUT_S)

    def _post(
        self,
        batch: Sequence[Message],
        operation: int | None = None,
        *,
        addressees: Sequence[Addressee] = (),
        responses: int = 1,
    ) -> None:
        """Queue requests, to be sent together with the next one that is waited for."""
        operation = operation or self._operation()
        request, packed, posted = self._requests, [], []
        for message in batch:
            request += 1
            try:
                packed.append(
                    messages.pack(
                        message, correlation=operation, request=request, addressees=addressees
                    )
                )
            except (MessageError, struct.error) as error:
                raise DeviceError(
                    f"{message} has a number that does not fit: {error}",
                    status="refused",
                    code="invalid",
                ) from None
            posted.append(Posted(request, self._title(message), responses))
        self._requests = request
        self._unsent += packed
        self._posted += posted

    def _send(self, seconds: float) -> None:
        data, self._unsent = b"".join(self._unsent), []
        self._busy = True
        # A runner that has exited, or does not read, is reported when its response is missing.
        with contextlib.suppress(ConnectionError, TimeoutError):
            self._connection.send(data, self._deadline(seconds))
        self._busy = False

    def _title(self, message: Message) -> str:
        """The name of a request in errors."""
        name = type(message).__name__
        if not isinstance(message, KernelLaunch) or not message.orchestration:
            return name
        orchestration = self._names.get(message.orchestration, "")
        return f"{name} of orchestration '{orchestration}' and its tasks"

    def _problem(self, response: Response) -> DeviceError:
        """The error for a response that is not OK."""
        try:
            status = Status(response.status)
        except ValueError:
            return self._end(f"the runner answered with status {response.status}", "crashed")
        launched = response.answers == KernelLaunch.KIND
        if status in _FATAL or (launched and status == Status.OUT_OF_MEMORY):
            return self._end(response.detail, _TRIAL_STATUS[status])
        return DeviceError(
            response.detail,
            status=_TRIAL_STATUS.get(status, "refused"),
            code=status.name.lower(),
        )

    def _missing(self, name: str, error: Exception, seconds: float) -> DeviceError:
        """The error for a request without a response."""
        if isinstance(error, TimeoutError):
            return self._end(f"no answer to {name} within {seconds:g} s", "timeout")
        if isinstance(error, MessageError):
            return self._end(f"the runner sent what is not a message: {error}", "crashed")
        by_itself = self._connection.process.wait(CRASH_SECONDS)
        returncode = self._connection.end()
        if name == Hello.__name__:
            why = f"the runner did not start: {self._last_line(returncode)}"
        elif not by_itself or returncode == Exit.DISCONNECTED:
            why = f"the kernel closed the runner's connection to the engine during {name}"
        else:
            said = self._explanation(self._connection.process.tail())
            why = f"{ending(returncode)} during {name}" + (f": {said}" if said else "")
        return self._end(why, "crashed")

    def _explanation(self, output: str) -> str:
        """A crashed process's own explanation: the sanitizer's summary line, with file and line."""
        said = [line for line in output.splitlines() if "SUMMARY: " in line]
        return said[-1].partition("SUMMARY: ")[2] if said else ""

    def _last_line(self, returncode: int) -> str:
        lines = self._connection.process.tail().strip().splitlines()
        return f"{ending(returncode)}, {lines[-1]}" if lines else ending(returncode)

    def _end(self, reason: str, status: str) -> DeviceError:
        """End the session; every later operation repeats this reason."""
        self._connection.end()
        stderr = self._connection.process.tail()
        self._finalizer()
        self._ended = DeviceError(reason, status=status, stderr=stderr)
        return self._ended


def _with_the_others(
    problem: DeviceError, posted: Posted, answers: Sequence[Answer]
) -> DeviceError:
    """The error of a request to several parts, with the outcome of all of them."""
    if posted.responses == 1:
        return problem
    given = answers[-posted.responses :]
    failed = [f"{a.responder}" for a in given if a.response.status != Status.OK]
    shown = ", ".join(failed[:SHOWN]) + (", ..." if len(failed) > SHOWN else "")
    return DeviceError(
        f"{problem.message} ({len(failed)} of {posted.responses} parts failed: {shown}; "
        f"{len(given) - len(failed)} succeeded)",
        status=problem.status,
        stderr=problem.stderr,
        code=problem.code,
    )


def _release(connection: Connection) -> None:
    connection.end()
    connection.process.release()
