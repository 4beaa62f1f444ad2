"""Fuzzed words, expressions, sizes and constraints: an answer or a KernloomError, no traceback."""

# ruff: noqa: SIM905 (words are easier to read and to add to than quoted lists of them)

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from attacks import Attack
from kernloom.base.errors import KernloomError
from kernloom.base.expressions import evaluate, parse_size
from kernloom.base.places import Places, share_folder
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_each
from parsed import points_of

LONGEST_S = 20.0
"""CPU time that no single case comes near to unless something grows without bounds."""
NUMBERS = [
    *"0 1 -1 7 64 1.5 -0.0 1e3 1e308 1e309 -1e400 nan inf -inf 0x10 1_000 00 1e-320".split(),
    *("1" + "0" * 20, "9" * 400, "1" + "0" * 4400, str(2**63), str(-(2**63))),
]
TEXTS = [
    *("a", "''", '"x"', "null", "true", "off", "a b", "ä"),
    *("\x1b[31m", "\u202e", "${seed}", "${a}", "???"),
]
KEYS = """
timeout seed workload case target toolchain arch runtime measure store sweep fleet output rerun
recipe trace x hydra/launcher workload@foo a/b . .. x.0.y 0
workload.sizes.M workload.sizes.N workload.dtype workload.name workload.scalars.alpha workload.steps
workload.tensors.A.fill.low workload.tensors.A.fill.kind workload.tensors.A.shape workload.cases
workload.cost.flops workload.golden.C workload.tolerance.float32.rtol
measure.samples measure.warmup measure.min_sample_us measure.max_rounds measure.bound
measure.peers select.fixed.tile.mr select.fixed.tile select.providers select.fixed
sweep.where sweep.axes.seed sweep.axes sweep.zip sweep.sample.count sweep.exclude sweep.points.p
sweep.nested pipeline.stages.source pipeline.stages pipeline
arch.vector_bits arch.caches.l1 arch.cores arch.registers arch.name toolchain.flags toolchain.tools
target.variant target.emulator screen.keep fleet.chunk build.jobs
""".split()
PIECES = [
    *(*NUMBERS, *TEXTS, *"[]{}(),:='\"\\$@~+* \n\0", "axes", "where", "a:"),
    *"range( choice( glob( sort( shuffle( int( float( interval( tag( extend_list(".split(),
    *"from: to: step: powers_of_two:".split(),
]
OPERANDS = [
    *"N M x A B v 1 0 -1 2.5 1e308 10**300 'a' True nothing A.T A[0] A[:,1] A[1:0:-1]".split(),
    *("[1, 2]", "(1, 2, 3)", "[[1, 2], [3, 4]]", "9" * 80, "9" * 5000),
]
OPERATORS = [*"+ - * / // % ** @ & | < <= == != > and or ^ << in , is :=".split(), "if True else"]
FUNCTIONS = """
min max abs ceil_div round_up where transpose reshape sqrt exp log log2 tanh floor ceil sum mean var
std amax amin eval __import__
""".split()


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    folder = tmp_path_factory.mktemp("fuzzed")
    return Assembly(Places(share_folder(), None, folder / "build", folder / "store.db"))


def test_attack_words(attack: Attack, assembly: Assembly) -> None:
    def plan(words: list[str]) -> None:
        multirun = "-m" in words
        given = [word for word in words if word != "-m"]
        plan_each(
            assembly, _few(points_of(assembly.composer, given, multirun=multirun)), alone=True
        )

    cases = list(_seeded(attack, _words, 20_000))
    _try(attack, cases, 150, plan)


def test_attack_expressions(attack: Attack) -> None:
    arrays = {"A": np.arange(12.0).reshape(3, 4), "B": np.ones((4, 3)), "v": np.arange(4)}
    variables = {"N": 64, "M": 3, "x": 2.5, "nothing": None, **arrays}
    cases = list(_seeded(attack, lambda random: _expression(random, 4), 60_000))
    _try(attack, cases, 3000, lambda text: evaluate(text, variables))


def test_attack_sizes(attack: Attack) -> None:
    units = ["", "B", "KiB", "MiB", "GB", "TiB", "kb", " KiB", "XiB", "e9", "\n", "\0", "١"]

    def size(random: random.Random) -> Any:
        number = random.choice([*NUMBERS, "1.", ".5", "1.5", "9" * 59, "0" * 60, "", "-5"])
        text = number + random.choice(units)
        return random.choice(
            [text, text, text, None, [text], True, -1, 10**500, 1e308, float("nan")]
        )

    _try(attack, list(_seeded(attack, size, 20_000)), 2000, parse_size)


def test_attack_constraints(attack: Attack, assembly: Assembly) -> None:
    """Sweeps over a few axes, whatever is said of what must hold."""

    def plan(where: str) -> None:
        words = ["sweep.axes.seed=[1,2,3]", "workload.sizes.N=range(1,100)", f"sweep.where={where}"]
        for _ in _few(points_of(assembly.composer, words, multirun=True)):
            pass

    def constraint(random: random.Random) -> str:
        return _expression(random, 3, ["N", "seed", "workload.sizes.N", "M", *OPERANDS])

    _try(attack, list(_seeded(attack, constraint, 5_000)), 150, plan)


def _try(attack: Attack, cases: list[Any], small: int, call: Callable[[Any], Any]) -> None:
    for case in attack.cases(cases, small=small):
        start = time.process_time()
        try:
            call(case)
        except KernloomError as error:
            if len(str(error)) > 20_000:
                attack.failed(f"{_shown(case)}: a message of {len(str(error))} characters")
        except Exception as error:
            attack.failed(f"{_shown(case)}: {type(error).__name__}: {str(error)[:200]}")
        if time.process_time() - start > LONGEST_S:
            attack.failed(f"{_shown(case)}: took {time.process_time() - start:.0f} s")
    attack.check()


def _shown(case: Any) -> str:
    text = ascii(case)
    return text if len(text) <= 300 else f"{text[:300]}..."


def _seeded(attack: Attack, make: Callable[[random.Random], Any], count: int) -> Iterator[Any]:
    return (make(attack.random) for _ in range(count))


def _few(points: Iterator[Any]) -> Iterator[Any]:
    for _, point in zip(range(3), points, strict=False):
        yield point


def _words(random: random.Random) -> list[str]:
    words = [_word(random) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    return words + random.choice([[], [], ["-m"]])


def _word(random: random.Random) -> str:
    kind = random.random()
    key = random.choice(KEYS)
    prefix = random.choice(["", "", "", "", "+", "++", "~"])
    if kind < 0.35:
        value = random.choice([*NUMBERS, *TEXTS])
    elif kind < 0.5:
        value = _nested(random, 3)
    elif kind < 0.6:
        value = _expression(random, 2)
    elif kind < 0.65:
        value = random.choice("[{(") * random.choice([10, 60, 3000])
    else:
        value = "".join(random.choice(PIECES) for _ in range(random.randint(0, 8)))
    equals = random.choice(["=", "=", "=", "=", "=", "=", "=", "", "=="])
    return f"{prefix}{key}{equals}{value}"


def _nested(random: random.Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.3:
        return random.choice([*NUMBERS, *TEXTS])
    inner = [_nested(random, depth - 1) for _ in range(random.randint(0, 3))]
    if random.random() < 0.5:
        return f"[{','.join(inner)}]"
    return (
        "{"
        + ",".join(f"{random.choice(['a', 'from', 'kind', 'shape', 'use'])}:{i}" for i in inner)
        + "}"
    )


def _expression(random: random.Random, depth: int, operands: list[str] = OPERANDS) -> str:
    if depth == 0 or random.random() < 0.2:
        return random.choice(operands)
    inner = [_expression(random, depth - 1, operands) for _ in range(random.randint(1, 3))]
    kind = random.random()
    if kind < 0.3:
        return f"{random.choice(FUNCTIONS)}({', '.join(inner)})"
    if kind < 0.35:
        return f"{inner[0]}[{inner[-1]}]"
    if kind < 0.4:
        return f"{random.choice(['-', 'not ', '+', '~'])}{inner[0]}"
    if kind < 0.43:
        return f"sum({inner[0]}, axis={inner[-1]})"
    return f"({f' {random.choice(OPERATORS)} '.join(inner)})"
