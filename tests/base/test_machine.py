"""What a machine is enters a trial's identity; what it is doing is recorded beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kernloom.base.machine import (
    available_memory,
    cgroup_memory_left,
    cpu_model,
    flags_in,
    machine_class,
    machine_facts,
    parse_cpuinfo,
)

X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
X86 += "model name\t: AMD EPYC\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: other\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"


def test_the_first_processor_speaks_for_the_machine():
    info = parse_cpuinfo(X86)
    assert info["model name"] == "AMD EPYC"
    assert info["flags"] == "fpu avx2"


def test_cpus_that_share_a_name_are_told_apart_by_their_numbers():
    assert cpu_model(parse_cpuinfo(X86)) == "AMD EPYC (AuthenticAMD/25/17)"
    assert cpu_model(parse_cpuinfo(ARM)) == "(0x41/0xd40)"
    assert cpu_model({}) == "unknown"


def test_features_are_read_on_any_processor():
    assert {"sse3", "pni", "avx2"} <= flags_in(parse_cpuinfo("flags\t\t: fpu pni avx2\n"))
    assert flags_in(parse_cpuinfo(ARM)) == {"fp", "asimd", "sve"}
    assert "v" in flags_in(parse_cpuinfo("isa\t: rv64imafdcv_zicsr\n"))
    assert flags_in({}) == frozenset()


def test_the_class_of_a_machine_is_the_same_each_time_and_is_plain_data():
    assert machine_class() == machine_class()
    assert set(machine_class()) == {"cpu", "cores", "isa", "features"}
    assert json.loads(json.dumps(machine_class())) == machine_class()


def test_facts_do_not_name_the_machine():
    facts = machine_facts()
    assert machine_class().items() <= facts.items()
    assert facts["memory_total"] > 0
    assert os.uname().nodename not in json.dumps(facts)


def test_available_memory_is_some_of_the_memory():
    assert 0 < available_memory() <= machine_facts()["memory_total"]


def limit(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_the_tightest_limit_above_a_process_counts(tmp_path):
    limit(tmp_path / "a", {"memory.max": "1000\n", "memory.current": "900\n"})
    limit(tmp_path / "a/b", {"memory.max": "max\n", "memory.current": "100\n"})
    assert cgroup_memory_left(tmp_path, "0::/a/b\n") == 100


def test_memory_that_only_caches_files_can_be_had_back(tmp_path):
    files = {
        "memory.max": "1000",
        "memory.current": "900",
        "memory.stat": "anon 1\ninactive_file 300\n",
    }
    limit(tmp_path, files)
    assert cgroup_memory_left(tmp_path, "0::/\n") == 400


def test_a_limit_of_the_older_kind_is_found(tmp_path):
    files = {"memory.limit_in_bytes": "500", "memory.usage_in_bytes": "200"}
    limit(tmp_path / "memory", files)
    assert cgroup_memory_left(tmp_path, "4:cpu,cpuacct:/x\n3:memory:/not/mounted/here\n") == 300


def test_no_limit_is_no_limit(tmp_path):
    assert cgroup_memory_left(tmp_path, "0::/\n") is None
    assert cgroup_memory_left(tmp_path, "") is None
