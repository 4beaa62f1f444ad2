"""Goldens in Python files: in a process of their own, with limits, and clear errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernloom.base.digest import DigestCache
from kernloom.base.errors import ConfigError
from kernloom.config.goldens import golden_file
from kernloom.config.schema import Tensor, Workload
from kernloom.measure import golden_files
from kernloom.measure.data import check_goldens
from kernloom.measure.golden_files import call_golden

FILE = """\
import os, sys
import numpy as np

def doubled(inputs, scalars, sizes):
    print("this does not mix with the answer")
    return inputs["x"] * scalars["a"] + sizes["n"]

def raises(inputs, scalars, sizes):
    return inputs["nothing"]

def forever(inputs, scalars, sizes):
    while True:
        pass

def short(inputs, scalars, sizes):
    return np.zeros(2)

def text(inputs, scalars, sizes):
    return "abc"

def huge(inputs, scalars, sizes):
    return np.ones(10**12)

def endless(inputs, scalars, sizes):
    return np.broadcast_to(1.0, 10**12)

def leaves(inputs, scalars, sizes):
    os._exit(3)

def quits(inputs, scalars, sizes):
    sys.exit("no")

def identity(inputs, scalars, sizes):
    np.changed = getattr(np, "changed", 0) + 1
    os.write(1, b"x" * 100)
    return np.array([os.getpid(), os.getppid(), np.changed])

def neighbour(inputs, scalars, sizes):
    import beside
    return beside.y
"""
X = np.array([1.0, 2.0, 3.0])


def called(folder: Path, name: str, path: str = "golden.py") -> np.ndarray:
    if not (folder / "golden.py").exists():
        (folder / "golden.py").write_text(FILE)
        (folder / "beside.py").write_text("y = 1")
    file = golden_file(f"{path}:{name}")
    assert file
    return call_golden(file, [folder], {"x": X}, {"a": 2.0}, {"n": 3}, (3,), "workload.golden.y")


def test_it_gets_inputs_scalars_and_sizes(tmp_path: Path) -> None:
    np.testing.assert_array_equal(called(tmp_path, "doubled"), 2 * X + 3)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("raises", r"golden.py:raises failed: KeyError: 'nothing' \(line 9\)"),
        ("short", r"has shape \[2\], but tensor 'y' is \[3\]"),
        ("text", "returned str, not an array"),
        ("huge", "needs more than 4.0 GiB"),
        ("leaves", r"ended without a result \(exit 3\)"),
        ("quits", "SystemExit: no"),
        ("missing", "has no function 'missing'"),
        ("neighbour", "ModuleNotFoundError"),
    ],
)
def test_a_failure_is_a_clear_error(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        called(tmp_path, name)


def test_one_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_files, "SECONDS", 1.0)
    with pytest.raises(ConfigError, match="gave no answer within 1 s"):
        called(tmp_path, "forever")


def test_a_file_outside_of_the_project_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "project"
    inside.mkdir()
    (tmp_path / "outside.py").write_text(FILE)
    with pytest.raises(ConfigError, match="leaves"):
        called(inside, "doubled", "../outside.py")
    with pytest.raises(ConfigError, match="does not exist"):
        called(inside, "doubled", "other.py")


def test_other_goldens_are_not_files() -> None:
    for text in ("x + y", "conv2d", "x[1:2]", "golden.py", "golden.py:", 3):
        assert golden_file(text) is None


def test_a_result_that_does_not_fit_into_an_answer_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "golden.py").write_text(FILE)
    file = golden_file("golden.py:endless")
    assert file
    with pytest.raises(ConfigError, match=r"needs more than 4\.0 GiB"):
        call_golden(file, [tmp_path], {}, {}, {}, (10**12,), "workload.golden.y")


def test_calls_share_an_interpreter_but_no_process(tmp_path: Path) -> None:
    first, second = (called(tmp_path, "identity") for _ in range(2))
    assert first[0] != second[0]
    assert first[1] == second[1]
    # What one changes another does not see.
    assert first[2] == second[2] == 1
    # One that leaves, or never ends, leaves nothing behind for the next.
    with pytest.raises(ConfigError, match="ended without a result"):
        called(tmp_path, "leaves")
    assert list(called(tmp_path, "doubled")) == [5.0, 7.0, 9.0]


def test_threads_have_processes_of_their_own(tmp_path: Path) -> None:
    called(tmp_path, "doubled")
    with ThreadPoolExecutor(3) as threads:
        names = ["identity"] * 3
        found = list(threads.map(lambda name: called(tmp_path, name), names))
    assert {one[2] for one in found} == {1}


LEAVING = """\
import os, subprocess, time

def leaves(inputs, scalars, sizes):
    asleep = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if os.fork() == 0:
        time.sleep(1000)
    os.fork()
    return [asleep.pid]

def hangs(inputs, scalars, sizes):
    asleep = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open("asleep", "w") as file:
        file.write(str(asleep.pid))
    time.sleep(1000)

def garbage(inputs, scalars, sizes):
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, b"[3]\\n")
        except OSError:
            pass
    return [1]
"""


def test_processes_of_a_call_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "golden.py").write_text(LEAVING)

    def call(name: str) -> np.ndarray:
        file = golden_file(f"golden.py:{name}")
        assert file
        return call_golden(file, [tmp_path], {}, {}, {}, (1,), "workload.golden.y")

    (asleep,) = call("leaves")
    assert not Path(f"/proc/{int(asleep)}").exists()
    with pytest.raises(ConfigError, match="ended without a result"):
        call("garbage")
    monkeypatch.setattr(golden_files, "SECONDS", 1.0)
    with pytest.raises(ConfigError, match="gave no answer within 1 s"):
        call("hangs")
    assert not Path(f"/proc/{(tmp_path / 'asleep').read_text()}").exists()


def test_a_golden_that_differs_from_call_to_call_is_refused(tmp_path: Path) -> None:
    (tmp_path / "golden.py").write_text(
        "import numpy as np\n"
        "def drawn(inputs, scalars, sizes):\n"
        "    return np.random.rand(sizes['n'])\n"
        "def nan(inputs, scalars, sizes):\n"
        "    return np.full(sizes['n'], np.nan)\n"
    )
    workload = Workload(
        name="any",
        sizes={"n": 4},
        tensors={"y": Tensor(("n",))},
        golden={"y": "golden.py:drawn"},
        kernels={},
    )
    cache = DigestCache()
    with pytest.raises(ConfigError, match="differs between two calls with the same arguments"):
        check_goldens(workload, cache, [tmp_path])
    check_goldens(replace(workload, golden={"y": "golden.py:nan"}), cache, [tmp_path])


def test_results_do_not_depend_on_the_order_of_a_set_in_some_process(tmp_path: Path) -> None:
    (tmp_path / "golden.py").write_text(
        "import numpy as np\n"
        "def ordered(inputs, scalars, sizes):\n"
        "    words = {'a', 'bb', 'ccc', 'dddd', 'eeeee'}\n"
        "    return np.array([len(word) for word in words][:3])\n"
    )
    found = set()
    for _ in range(4):
        # A thread has a process of its own.
        with ThreadPoolExecutor(1) as thread:
            found.add(tuple(thread.submit(called, tmp_path, "ordered").result()))
    assert len(found) == 1
