"""The CPU time that tests cost, with the processes they start: `pytest --costs`."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Generator

import pytest

from prefork import Server

LONGEST = 20
PROPERTY = "cpu_s"


class Costs:
    """Measures each test where it runs, and shows the sums where they are reported."""

    def __init__(self) -> None:
        self._before = 0.0
        self._by_test: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._before = _cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((PROPERTY, _cpu_s() - self._before))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, float):
                self._by_test[report.nodeid] = value

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folders: Counter[str] = Counter()
        files: Counter[str] = Counter()
        tests: Counter[str] = Counter()
        for test, cost in self._by_test.items():
            file = test.partition("::")[0]
            folders[file.rpartition("/")[0]] += cost  # type: ignore[assignment]
            files[file] += cost  # type: ignore[assignment]
            tests[test] += cost  # type: ignore[assignment]
        terminalreporter.section("CPU seconds")
        for title, found in (("folder", folders), ("file", files), ("test", tests)):
            terminalreporter.write_line(f"by {title}, {sum(found.values()):.1f} in all")
            for name, cost in found.most_common(None if title == "folder" else LONGEST):
                terminalreporter.write_line(f"{cost:8.1f}  {name}")


def _cpu_s() -> float:
    """Of this process and of those that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used) + Server.cpu_s
