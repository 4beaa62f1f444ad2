"""Data files become tensors, and a file that is not what it should be is a clear error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernloom
from kernloom.base.errors import ConfigError
from kernloom.config.schema import Fill
from kernloom.measure import data, fills
from kernloom.measure.data import Array
from kernloom.plan.schedule import TensorSpec

NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)
TRUNCATED = """
import os, sys
from pathlib import Path
import numpy as np
from kernloom.config.schema import Fill
from kernloom.measure import fills
from kernloom.plan.schedule import TensorSpec
folder = Path(sys.argv[1])
spec, fill = TensorSpec("x", (100_000,), "float32"), Fill(kind="file", path="x.npy")
values = fills._file(fills.Filling(spec, fill, np.random.default_rng(0), [folder], "x.fill"))
os.truncate(folder / "x.npy", 10)
print(values.astype("float64").sum())
"""


def read(folder: Path) -> Array:
    fill = Fill(kind="file", path="x.npy")
    spec = TensorSpec("x", NUMBERS.shape, "float32")
    random = np.random.default_rng(0)
    return fills._file(fills.Filling(spec, fill, random, [folder], "x.fill"))


def npy(values: Array, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values, version)
    return file.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    "values",
    [NUMBERS, np.asfortranarray(NUMBERS), NUMBERS.astype(">i8"), NUMBERS > 3],
    ids=["plain", "fortran", "big-endian", "bool"],
)
def test_a_data_file_is_read_as_numpy_reads_it(
    tmp_path: Path, values: Array, version: tuple[int, int]
) -> None:
    (tmp_path / "x.npy").write_bytes(npy(values, version) + b"more")
    assert np.array_equal(read(tmp_path), values)


WRONG = {
    "empty": (b"", "is not a .npy file of numbers"),
    "text": (b"not numbers", "is not a .npy file of numbers"),
    "half a header": (npy(NUMBERS)[:40], "is not a .npy file of numbers"),
    "cut short": (npy(NUMBERS)[:-5], "cut short: its header announces 48 bytes .* 43 are there"),
    "nothing after the header": (npy(NUMBERS)[:-48], "announces 48 bytes .* 0 are there"),
    "complex": (npy(NUMBERS.astype(complex)), "is not a .npy file of real numbers"),
    "words": (npy(NUMBERS.astype(str)), "is not a .npy file of real numbers"),
    "fields": (npy(np.zeros(3, [("a", "f4")])), "is not a .npy file of real numbers"),
    "another shape": (npy(np.zeros(5)), r"gives shape \[5\], but the tensor is \[3, 4\]"),
    "a huge shape": (
        npy(np.zeros(900_000)).replace(b"(900000,)", b"(9**9**9)")[:200],
        "is not a .npy file of numbers",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_data_file_is_a_clear_error(tmp_path: Path, name: str) -> None:
    content, said = WRONG[name]
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read(tmp_path)


def test_a_data_file_that_became_a_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "x.npy")
    monkeypatch.setattr(fills, "confined", lambda *_, **__: tmp_path / "x.npy")
    with pytest.raises(ConfigError, match="is not a regular file"):
        read(tmp_path)


def test_a_data_file_may_be_cut_short_once_it_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(100_000, np.float32))
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(Path(kernloom.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "100000.0\n"), done.stderr


def test_random_numbers_of_many_seeds_are_not_kept_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MAX_CACHED_BYTES", 8 * 4 * data.FIRST)
    sets = data.DataSets([tmp_path])
    spec, fill = TensorSpec("x", (10,), "float32"), Fill(kind="uniform")
    first = sets._from_stream(spec, fill, 0).copy()
    for seed in range(100):
        sets._from_stream(spec, fill, seed)
    assert len(sets._streams) <= 10
    assert np.array_equal(sets._from_stream(spec, fill, 0), first)
