"""The rule for each field of a recipe: a table over the whole schema of an experiment.

A recipe may come from a stranger. Every program, argument of a program, install command and path
comes from the configs of the machine that replays it; the recipe selects configs by name, and keeps
values. A field of the schema that is missing here fails a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kernloom.config.accelerator import (
    Clock,
    Compute,
    Control,
    Dma,
    Hbm,
    Link,
    Links,
    Mmu,
    Sram,
    Topology,
)
from kernloom.config.schema import (
    Arch,
    Argument,
    Caches,
    Charge,
    Cost,
    Distribute,
    Emulator,
    Experiment,
    Fill,
    Fuzzing,
    GraphSizes,
    Kernel,
    KernelSource,
    Machine,
    MicroKernel,
    MicroTile,
    OwnOrchestration,
    Pipeline,
    Policy,
    Ring,
    Runtime,
    SelectSettings,
    SizeRange,
    Step,
    SubmittedKernel,
    Target,
    Tensor,
    TileAxis,
    Tolerance,
    Toolchain,
    Tunable,
    Work,
    Workload,
)
from kernloom.plan.transforms import TRANSFORMS


class Rule(Enum):
    """How a field of a recipe is read."""

    VALUE = "the recipe's: data that names no program and no file"
    NAME = "the recipe's: the name of a config that this machine must have"
    SAME = "the recipe is refused if it differs from this machine's config"
    OURS = "this machine's config; a note if the recipe differs"
    ADVICE = "this machine's config"
    FLAGS = "the recipe's, if each flag is this machine's own or of a harmless kind"
    PATH = "the recipe's: a relative path inside this machine's template and project folders"
    NEVER = "the recipe is refused if it has a value"
    COMPUTED = "the recipe's expressions; a Python file only if this machine's config has it"
    PERMITTED = "the recipe is refused if it lists more than this machine's workload of that name"
    STAGES = "the recipe's, by the options of each stage type (STAGE_OPTIONS)"
    OPTIONS = "the recipe's for the devices in DEVICE_OPTIONS, else this machine's"
    LOCAL = "belongs to whoever replays the recipe, which cannot have it"


def _rules(values: str = "", **others: str) -> dict[str, Rule]:
    """Field -> rule, from field names in one text per rule."""
    rules = dict.fromkeys(values.split(), Rule.VALUE)
    for rule, names in others.items():
        rules |= dict.fromkeys(names.split(), Rule[rule])
    return rules


FIELDS: Mapping[type, Mapping[str, Rule]] = {
    Experiment: _rules(
        "workload target arch toolchain runtime pipeline select measure"
        " case seed timeout memory_limit catch distribute",
        LOCAL="store fleet sweep build screen search output rerun recipe trace trace_level deps"
        " replay whatif show",
    ),
    Workload: _rules(
        "name sizes tensors kernels steps orchestration about dtype stateful scalars tolerance fuzz"
        " cost cases",
        COMPUTED="golden region",
        PERMITTED="allow",
    ),
    OwnOrchestration: _rules("kernels access", PATH="file"),
    SubmittedKernel: _rules("kernel sizes"),
    Kernel: _rules(
        "name arguments sources about dtypes tunables constraints model epilogues micro_kernels"
    ),
    KernelSource: _rules(
        "function macros work finish core distribute charge tunables constraints model",
        PATH="template file",
    ),
    Distribute: _rules("axes regions sum"),
    TileAxis: _rules("size tile"),
    Charge: _rules("unit operations"),
    MicroKernel: _rules("operation tile dtype function isa layout unit cost about", PATH="file"),
    MicroTile: _rules("m n k"),
    Tunable: _rules("values off about"),
    Argument: _rules("kind access shape dtype"),
    Work: _rules("items group scratch"),
    Tensor: _rules("shape dtype fill place"),
    Fill: _rules("kind low high mean std value pattern generator", PATH="path"),
    Step: _rules("kernel args"),
    Tolerance: _rules("rtol atol ulp"),
    Fuzzing: _rules("sizes values alignment"),
    SizeRange: _rules("low high multiple"),
    Cost: _rules("flops bytes"),
    Target: _rules(
        "variant about",
        NAME="name",
        SAME="device",
        OURS="family sources emulator machines",
        ADVICE="variants sanitized systems sessions",
        OPTIONS="options",
    ),
    Emulator: _rules(OURS="program isa args lacks", ADVICE="minimum_version install"),
    Machine: _rules(OURS="isa toolchain emulator platform"),
    Arch: _rules(
        "name isa vector_bytes registers caches features vector_bits vector_lengths memory cores"
        " topology clock hbm sram mmu dma links compute control provenance micro_kernels about",
        FLAGS="flags",
    ),
    Caches: _rules("l1 l2 l3"),
    Topology: _rules("sips cubes pes"),
    Clock: _rules("core_mhz"),
    Hbm: _rules("bytes bandwidth channels interleave latency_ns"),
    Sram: _rules("bytes banks bank_bandwidth latency_ns"),
    Mmu: _rules("page tlb_entries walkers walk_ns hit_ns"),
    Dma: _rules("engines bandwidth issue_ns"),
    Links: _rules("pcie io_cpu management noc sip"),
    Link: _rules("latency_ns bandwidth"),
    Compute: _rules("matrix vector startup_cycles"),
    Control: _rules(
        "submit_ns dispatch_ns complete_ns switch_ns register_store_ns register_load_ns"
    ),
    Toolchain: _rules(
        "about",
        NAME="name",
        SAME="tools",
        OURS="family",
        ADVICE="minimum_version install search",
        FLAGS="flags cxx_flags kernel_flags extra_flags variants",
    ),
    Runtime: _rules("ring graph queue about", NAME="name"),
    Ring: _rules("slots heap dependencies depths submissions"),
    GraphSizes: _rules("tasks heap edges"),
    Pipeline: _rules("name about", STAGES="stages"),
    SelectSettings: _rules("providers fixed", NEVER="file python"),
    Policy: _rules(
        "name samples warmup min_rounds max_rounds min_sample_us bound span_s drift budget_s clock"
        " pin scheduling cache aslr together peers floor about"
    ),
}
"""Dataclass of the schema -> field -> rule. Stage types, providers, generators, references and
peers are VALUEs: they name code that is installed here under that name."""

GRAPH_KEYS = ("use", "in", "after")
"""Keys of every stage, beside its options."""
STAGE_OPTIONS: Mapping[str, Mapping[str, Rule]] = {
    "inspect": {},
    "select": FIELDS[SelectSettings],
    **dict.fromkeys(TRANSFORMS, _rules("steps")),
    "catch": _rules("steps enabled"),
    "distribute": _rules("steps enabled placement"),
    "render": {},
    "compile": {},
    "orchestrate": {},
    "package": {},
    "firmware": {},
    "verify": {},
    "measure": {},
}
"""Stage type -> option -> rule. A stage of any other type, from a plug-in, is replayed only if it
is the same as in this machine's pipeline of that name: its options may mean anything."""

DEVICE_OPTIONS: Mapping[str, frozenset[str]] = {
    "accelerator": frozenset(
        {"threads", "timeout_ns", "hazards", "dead", "slow", "lose", "late", "corrupt"}
    ),
    "opencl": frozenset({"platform", "device", "index", "compute_units", "host_memory"}),
}
"""Device -> the options of `target.options` that are values. Options of other devices come from
this machine."""

LOCAL_KEYS = tuple(name for name, rule in FIELDS[Experiment].items() if rule is Rule.LOCAL)
"""Root keys that belong to the person who replays a recipe."""
