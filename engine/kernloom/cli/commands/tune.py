"""Search the tunables of a workload's kernels on a target, and race the leaders.

Points are built and measured in batches; every trial is stored the moment it ends, so a repeated
command goes on from what is stored. The leaders are then measured in the same rounds until the best
is separated from the others, and it is verified on every case of the workload.

  kernloom tune workload=matmul
  kernloom tune workload=softmax target=aarch64 trials=60 patience=20
  kernloom tune workload=matmul toolchain=gcc,clang select.fixed.parallelize.threads=1
  kernloom tune workload=matmul objective='cpu_ns * processes'
  kernloom tune workload=matmul export=matmul_library export=matmul.yaml
  kernloom tune workload=mlp steps=[fc1,act1] search=brief

export=FILE.yaml writes the winner's parameters (for select.file), export=FILE.json every result in
T4, export=FOLDER the winner as C sources with a test program that need no Kernloom.

Keys with several values are searched beside the tunables. Settings of the search, also search.KEY:

  strategy=NAME                  how points are suggested
  trials=100, seconds=60         budget: points, duration
  patience=20                    stop after so many points without a gain
  batch=8                        points that are built together
  objective=gflops, =[a,b]       a metric, a formula, or several (Pareto front)
  steps=[fc1]                    whose tunables are searched
  memory=false                   do not start from what is stored
  screening=quick, racing=standard, leaders=5, stages=3
  limit=10                       stop launches that take so many times longer than the best
  build_limit=20                 stop compilers that take so many times longer than before

With space=FILE, strategies search a recorded space (a cache of Kernel Tuner or T4, plain or .gz)
without a device, several times with consecutive seeds. The score is 0 for random search and 1 for
the best point at once. budget=N is the number of evaluations; the default is the number after
which random search is expected to be 95% of the way from the median to the best.

  kernloom tune space=recorded.json.gz
  kernloom tune space=recorded.json strategy=auto,genetic budget=100 repeats=20 seed=0
  kernloom tune space=results.t4.json objective=median_ns output=json
"""

from __future__ import annotations

from kernloom.cli.invocation import Invocation

SWEEPS = True
REPORT = "tune"
USAGE = "[key=value ...] | space=FILE [strategy=NAME,...] [budget=N] [repeats=N] [seed=N]"


def run(invocation: Invocation) -> int:
    if any(word.startswith("space=") for word in invocation.words):
        from kernloom.cli import replays

        return replays.run(invocation)
    from kernloom.cli.tuning.study import run_study_command

    return run_study_command(invocation)
