"""What the checks of measured launches cost: a process with them against one without, in turns.

Without them a process has one data set and no changes between its runs, and the last result is
compared with the golden only where kernels do not update their inputs.

  .venv/bin/python benchmarks/cheat_checks.py [PROCESSES] [POLICY] [TARGET] [WORKLOAD ...]
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent.parent / "engine"))

import io
from contextlib import ExitStack

from kernloom.cli.progress import Progress
from kernloom.config.overrides import Overrides
from kernloom.measure import sampler as sampling
from kernloom.measure.sampler import Sampler
from kernloom.measure.statistics import median
from kernloom.measure.verify import verified_launch
from kernloom.run.assembly import Assembly
from kernloom.run.contenders import Contenders
from kernloom.run.execution import Building
from kernloom.run.trials import Trials
from kernloom.store.store import open_store

WORKLOADS = ("matmul", "axpy", "softmax", "transpose", "conv2d", "mlp", "stencil5", "layernorm")


class Unchecked(Sampler):
    """As it was without the checks."""

    def sample(self, *, fresh: bool = True):  # type: ignore[no-untyped-def]
        try:
            setup = self.bench.setup(self.steps, fresh=fresh)
            if setup.updated:
                result = setup.launch(self._settings())
            else:
                result, _ = verified_launch(self.bench, setup, self._settings())
        finally:
            self.bench.close()
        self._inner, self.last = result.inner, result
        return sampling.samples_of(result, self.bench.device)


def cpu_ms() -> float:
    """CPU time of the engine and of all processes that have ended, in milliseconds, which says the
    same on a busy machine."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return 1e3 * sum(usage.ru_utime + usage.ru_stime for usage in used)


def spent(sampler: Sampler) -> tuple[float, float]:
    """CPU time of one process, and its result in microseconds."""
    start = cpu_ms()
    found = sampler.sample()
    return cpu_ms() - start, median(found.cpu_ns or found.wall_ns) / 1e3


def main() -> None:
    words = sys.argv[1:]
    processes = int(words[0]) if words else 40
    policy = words[1] if len(words) > 1 else "standard"
    target = words[2] if len(words) > 2 else "host"
    workloads: Sequence[str] = words[3:] or WORKLOADS
    assembly = Assembly()
    progress = Progress(io.StringIO(), quiet=True)
    on = f"target={target} measure={policy}"
    print(f"{processes} processes each, {on}, CPU ms of process and engine")
    print(f"{'workload':12}{'without':>10}{'with':>10}{'ratio':>8}{'result':>9}")
    for workload in workloads:
        with open_store(assembly.places.store) as store, ExitStack() as stack:
            make = Contenders(assembly, store, Overrides())
            name, _, case = workload.partition("/")
            given = {"workload": name, "case": case or "default"}
            given |= {"target": target, "measure": policy}
            plan = make.composed("a", assembly.composer.choose(given)).plan
            assert plan
            building = Building(lambda found: assembly.builder(found.experiment), progress)
            trials = Trials(assembly, building([plan]))
            bench = stack.enter_context(trials.bench(plan))
            trials.verify(plan, bench)
            kinds = [
                kind(bench, plan.steps, plan.experiment.measure) for kind in (Unchecked, Sampler)
            ]
            for kind in kinds:
                kind.sample()
            kinds[1]._inner = kinds[0]._inner
            taken = [[spent(kind) for kind in kinds] for _ in range(processes)]
        without, with_ = (median(pair[i][0] for pair in taken) for i in (0, 1))
        ratio = median(pair[1][0] / pair[0][0] for pair in taken)
        same = median(pair[1][1] / pair[0][1] for pair in taken)
        print(f"{workload:12}{without:10.2f}{with_:10.2f}{ratio:8.3f}{same:9.3f}", flush=True)


if __name__ == "__main__":
    main()
