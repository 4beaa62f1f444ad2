"""A long sweep with every kind of fault in it: each is a row, and all the others are unharmed."""

from __future__ import annotations

from collections import Counter

import pytest

from command_line import DOUBLE, KERNEL, Done, Project
from parts import needs

POINTS = 100
WHOLE = 300
"""With --attack."""
FAULTS = {
    8: ("build_failed", "library", "no such point"),
    30: ("wrong", "correct", "golden"),
    47: ("crashed", "correct", "SIGSEGV"),
    63: ("timeout", "correct", "1 s"),
    80: ("out_of_memory", "correct", "memory"),
}
BODY = f"""\
{DOUBLE}
#if POINT == 8
#error no such point
#elif POINT == 30
    y[n / 2] += 1;
#elif POINT == 47
    *(volatile int *)8 = POINT;
#elif POINT == 63
    for (volatile int turn = 1; turn;) ;
#elif POINT == 80
    volatile char *room = malloc(100000000000);
    for (size_t at = 0; at < 100000000000; at += 4096) room[at] = 1;
#else
    y[0] += 0 * POINT;
#endif
"""
TUNABLE = """\
tunables:
  tile:
    point: {{values: [{}], "off": 0}}
"""
SWEEP = ("run", "-m", "workload=risky", "timeout=1", "memory_limit=1GiB")
HOARDS = """\
for (long got = 0; got < 100000; got++) {{
    char *room = {allocate};
    for (long at = 0; at < 1 << 20; at += 4096) room[at] = 1;
}}
y[0] = x[n - 1];
"""
MAPPED = "mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)"
HEAD = "#define _GNU_SOURCE\n#include <stdlib.h>\n#include <sys/mman.h>"


def risky(project: Project, points: int) -> str:
    """A kernel with that many points, some of them faulty; the word that sweeps them."""
    values = ",".join(map(str, range(points)))
    kernel = KERNEL.format(name="risky").replace(
        "function: risky", "function: risky, macros: {POINT: point}"
    )
    project.add("risky", BODY, head=HEAD, kernel=kernel + TUNABLE.format(values))
    return f"select.fixed.tile.point={values}"


def statuses(done: Done) -> Counter[str]:
    return Counter(trial["status"] for trial in done.trials)


@pytest.mark.slow
def test_a_long_sweep_survives_every_kind_of_fault(
    project: Project, pytestconfig: pytest.Config
) -> None:
    total = WHOLE if pytestconfig.getoption("--attack") else POINTS
    good = total - len(FAULTS)
    points = risky(project, total)
    done = project.json(*SWEEP, points)
    assert done.code == 1
    assert statuses(done) == {"ok": good, **{status: 1 for status, _, _ in FAULTS.values()}}
    for number, (status, stage, says) in FAULTS.items():
        trial = done.trials[number]
        assert (trial["status"], trial["stage"]) == (status, stage), trial
        assert says in trial["message"]

    again = project.run(*SWEEP, points)
    assert again.code == 1
    assert f"{good} verified, 5 failed" in again.stdout
    assert "1 build_failed, 1 wrong, 1 crashed, 1 timeout, 1 out_of_memory" in again.stdout
    # A compiler may be mended; everything else is taken from the store.
    assert f"{total - 1} from the store" in again.stdout


@pytest.mark.parametrize("allocate", ["malloc(1 << 20)", MAPPED])
def test_a_kernel_that_hoards_memory_ends_at_the_limit(project: Project, allocate: str) -> None:
    project.add("hoards", HOARDS.format(allocate=allocate), head=HEAD)
    done = project.json("run", "workload=hoards", "memory_limit=64MiB")
    assert (done.code, done.trial["status"], done.trial["stage"]) == (1, "out_of_memory", "correct")


def test_a_kernel_that_fits_the_limit_is_measured(project: Project) -> None:
    body = f"char *room = calloc(1 << 20, 16); room[n] = 1; free(room); {DOUBLE}"
    project.add("fits", body, head=HEAD)
    assert project.run("run", "workload=fits", "memory_limit=64MiB").code == 0


def test_tensors_beyond_the_limit_are_refused_with_both_numbers(project: Project) -> None:
    project.add("good")
    words = ("run", "workload=good", "workload.sizes.n=1000000", "memory_limit=5MiB")
    trial = project.json(*words).trial
    assert trial["status"] == "out_of_memory"
    assert "7.6 MiB" in trial["message"]
    assert "5.0 MiB (memory_limit)" in trial["message"]


def test_what_ran_out_of_memory_at_a_stated_limit_is_not_tried_again(project: Project) -> None:
    project.add("hoards", HOARDS.format(allocate="malloc(1 << 20)"), head=HEAD)
    words = ("run", "workload=hoards", "memory_limit=64MiB")
    project.run(*words)
    assert "1 from the store" in project.run(*words).stdout
    assert "from the store" not in project.run(*words, "rerun=failed").stdout
    assert "from the store" not in project.run(*words[:2], "memory_limit=65MiB").stdout


def test_a_shortage_of_the_machine_below_a_stated_limit_is_tried_again(project: Project) -> None:
    body = "volatile char *room = malloc(1000000000000000); room[n] = 1; y[0] = x[0];"
    project.add("greedy", body, head=HEAD)
    words = ("run", "workload=greedy", "memory_limit=100000GiB")
    trial = project.json(*words).trial
    assert trial["status"] == "out_of_memory"
    assert 0 < trial["conditions"]["memory_left"] < 100_000 << 30
    assert project.json(*words).trial["reused"] is False


@pytest.mark.parametrize(
    ("value", "says"), [("much", "is not a size"), ("-1", "is not a size"), ("0", "too small")]
)
def test_a_limit_that_is_none_is_refused(shared_project: Project, value: str, says: str) -> None:
    done = shared_project.run("run", "workload=good", f"memory_limit={value}")
    assert done.code == 2
    assert "memory_limit" in done.stderr
    assert says in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("target=aarch64",), ("target.variant=asan",)], ids=str)
def test_the_limit_holds_on_emulated_cpus_and_under_a_sanitizer(
    project: Project, words: tuple[str, ...]
) -> None:
    if words[0] == "target=aarch64":
        needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
    body = "volatile char *room = malloc(100000000000); room[n] = 1; y[0] = x[0];"
    project.add("greedy", body, head=HEAD)
    project.add("good")
    done = project.json("run", "-m", "workload=good,greedy", "memory_limit=64MiB", *words)
    assert [trial["status"] for trial in done.trials] == ["ok", "out_of_memory"], done.trials


def test_an_option_that_cannot_be_read_is_refused_and_the_others_go_on(project: Project) -> None:
    project.add("good")
    project.write("configs/workload/broken.yaml", "name: broken\n  sizes: [\n")
    project.write("configs/workload/odd.yaml", "name: odd\nsteps: 7\n")
    done = project.json("run", "-m", "workload=broken,good,odd", "seed=1,2")
    assert done.code == 1, done.stderr
    statuses = [(t["workload"], t["point"]["seed"], t["status"]) for t in done.trials]
    assert statuses == [
        ("good", 1, "ok"),
        ("good", 2, "ok"),
        ("broken", 1, "refused"),
        ("broken", 2, "refused"),
        ("odd", 1, "refused"),
        ("odd", 2, "refused"),
    ]
    assert "broken.yaml:2" in done.trials[2]["message"]
    assert "workload.steps: expected keys and values" in done.trials[4]["message"]
    lines = project.run("run", "-m", "workload=broken,good", "output=jsonl").lines
    assert [line["status"] for line in lines] == ["ok", "refused"]
    assert [t["workload"] for t in project.json("results").trials] == ["good"] * 3


def test_a_sweep_with_nothing_that_can_be_read_or_a_wrong_word_is_an_error(
    project: Project,
) -> None:
    project.add("good")
    project.write("configs/workload/broken.yaml", "name: broken\n  sizes: [\n")
    nothing = project.run("run", "-m", "workload=broken", "seed=1,2")
    assert nothing.code == 2
    assert "broken.yaml:2" in nothing.stderr
    for word in ("case=smal", "workload.sizes.nn=7", "seed=x,1"):
        done = project.run("run", "-m", "workload=good,broken", word)
        assert (done.code, done.stdout) == (2, ""), word
