"""Schema of an experiment: one frozen dataclass per config group, with the allowed values.

`convert` makes these from the composed, resolved plain data, with errors that name the key, the
value and what is allowed. Checks that involve several values are in `validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kernloom.base.digest import Digested
from kernloom.config.accelerator import (
    SECTIONS,
    Clock,
    Compute,
    Control,
    Dma,
    Hbm,
    Links,
    Mmu,
    Sram,
    Topology,
)
from kernloom.config.limits import FINITE, at_least, between
from kernloom.config.settings import (
    BuildSettings,
    ScreenSettings,
    SearchSettings,
    StoreSettings,
    SweepSettings,
)

Scalar = bool | int | float | str
"""Types of a tunable, a macro or a size."""
DTYPES = ("float32", "float64", "int32", "int64", "uint8")
"""Element types of tensors."""

SANITIZED = ("asan",)
"""Default names of variants that are built with a sanitizer."""

STATUSES = (
    "ok",
    "wrong",
    "crashed",
    "timeout",
    "out_of_bounds",
    "out_of_memory",
    "build_failed",
    "refused",
    "unavailable",
    "unconverged",
    "suspicious",
    "interrupted",
)


@dataclass(frozen=True)
class Tunable(Digested):
    """One parameter of a kernel, used by one transform."""

    values: tuple[Scalar, ...]
    """Allowed values; if the model is indifferent, the earlier value wins."""
    off: Scalar
    """The value if no stage of the pipeline applies its transform."""
    about: str = ""


@dataclass(frozen=True)
class Argument(Digested):
    """One argument of a kernel's C function."""

    kind: Literal["tensor", "size", "scalar"]
    access: Literal["read", "write", "update"] = "read"
    shape: tuple[int | str, ...] = ()
    dtype: str | None = None
    """Fixed element type; by default the workload's."""


@dataclass(frozen=True)
class Work(Digested):
    """Launch sizes of a kernel: expressions over its sizes and tunables."""

    items: tuple[int | str, ...]
    """Work-items in each dimension."""
    group: tuple[int | str, ...]
    """Work-items per group, which share local memory; divides `items`."""
    scratch: int | str | None = None
    """Elements of device memory passed to the function as its last argument."""


@dataclass(frozen=True)
class Charge(Digested):
    """What a plain C function costs on an accelerator's PE, as a core kernel would charge it."""

    unit: Literal["matrix", "vector", "scalar"] = "scalar"
    operations: int | str | None = None
    """Operations of one call, an expression over its sizes; default: one per element touched."""


@dataclass(frozen=True)
class TileAxis(Digested):
    """An axis along which a kernel computes in tiles."""

    size: int | str
    """Its length, an expression over the kernel's sizes."""
    tile: int | str
    """Length of a tile, an expression over sizes and tunables."""


@dataclass(frozen=True)
class Distribute(Digested):
    """How the output tiles of a core kernel become tasks, and what each of them touches."""

    axes: Mapping[str, TileAxis]
    """Axes of the output tiles, slowest first, as the kernel numbers its tiles."""
    regions: Mapping[str, tuple[str, ...]]
    """Tensor argument -> for each of its dimensions an axis, or `all`. `rows~1` is an axis with a
    halo of 1 on each side, `rows~0:2` with one of 2 behind it."""
    sum: Mapping[str, TileAxis] = field(default_factory=dict)
    """The axis of the sum over which an element is computed; `distribute.splits` splits it."""


@dataclass(frozen=True)
class KernelSource(Digested):
    """A kernel's source for one family of targets: a template, or a plain file."""

    template: str | None = None
    file: str | None = None
    function: str | None = None
    """The function's name in a plain file of C or OpenCL C."""
    macros: Mapping[str, Scalar] = field(default_factory=dict)
    """Macros of a plain file -> expressions over sizes and tunables."""
    work: Work | None = None
    """Launch sizes of a source in OpenCL C, whose function runs once per work-item."""
    finish: Work | None = None
    """Launch sizes of a second function, NAME_finish, run afterwards with the same arguments."""
    core: Literal["matrix", "vector"] | None = None
    """Core type of an accelerator's PEs that a source of the family `core` is written for."""
    distribute: Distribute | None = None
    """Output tiles that can be tasks of their own; without it a step is a single task."""
    charge: Charge | None = None
    """Cost of a plain C function on an accelerator, where it is wrapped."""
    tunables: Mapping[str, Mapping[str, Tunable]] | None = None
    """Tunables of this source, in place of the kernel's tunables, constraints and model."""
    constraints: tuple[str, ...] = ()
    model: str = "0"


@dataclass(frozen=True)
class MicroTile(Digested):
    """The tile of a product: m x n elements of the result, k steps along the sum at a time."""

    m: int = field(metadata=between(1, 1024))
    n: int = field(metadata=between(1, 1024))
    k: int = field(default=1, metadata=between(1, 1024))


@dataclass(frozen=True)
class MicroKernel(Digested):
    """A function for an inner tile of a kernel, in place of the loops of the kernel's template."""

    operation: str
    """Name of the kernel whose inner tile it computes."""
    tile: MicroTile
    dtype: str
    file: str
    """C, or assembly (`.s`), below templates/."""
    function: str
    isa: str = ""
    """The isa that it is written for; default: any."""
    layout: Literal["row_major", "packed_b"] = "row_major"
    """`packed_b`: the rows of its part of B must follow each other without a gap."""
    unit: Literal["matrix", "vector", "scalar"] = "matrix"
    """The unit of an accelerator's PE that it runs on."""
    cost: int | str | None = None
    """Cycles of one tile on that unit, an expression over m, n and k; default: its operations at
    the rate of the unit."""
    about: str = ""


CORE = "core"
"""Family of sources that run on a PE of an accelerator, with explicit loads and stores."""
WRAPPED = ("plain", "host")
"""Families of plain C that can be wrapped as a core kernel."""


@dataclass(frozen=True)
class Kernel(Digested):
    """One operation with a C ABI, its sources, tunables and constraints."""

    name: str
    arguments: Mapping[str, Argument]
    sources: Mapping[str, KernelSource]
    about: str = ""
    dtypes: tuple[str, ...] = ("float32", "float64")
    tunables: Mapping[str, Mapping[str, Tunable]] = field(default_factory=dict)
    """Transform -> name -> tunable."""
    constraints: tuple[str, ...] = ()
    model: str = "0"
    """Estimated cost of a point, from arch data, sizes and tunables; the cheapest is chosen."""
    epilogues: tuple[str, ...] = ()
    """Kernels that can be fused to the end of this one."""
    micro_kernels: Mapping[str, MicroKernel] = field(default_factory=dict)
    """Functions for its inner tile, beside those of the arch; the first that fits is used."""

    def source_for(self, families: Iterable[str]) -> tuple[str, KernelSource] | None:
        """The first of these families that the kernel has, and its source. Where core kernels run,
        plain C does as well, in a wrapper."""
        families = tuple(families)
        for family in families:
            if family in self.sources:
                return family, self.sources[family]
        for family in WRAPPED if CORE in families else ():
            source = self.sources.get(family)
            if source and not source.work and (source.file or family == "plain"):
                return family, source
        return None

    def for_sources(self, families: Iterable[str]) -> Kernel:
        """The kernel with the tunables of the first of these sources that it has."""
        found = self.source_for(families)
        tunables = found and found[1].tunables
        if found is None or tunables is None:
            return self
        model, constraints = found[1].model, found[1].constraints
        return replace(self, tunables=tunables, constraints=constraints, model=model)


@dataclass(frozen=True)
class Fill(Digested):
    """How a tensor is filled before a launch."""

    kind: Literal[
        "uniform",
        "normal",
        "integers",
        "constant",
        "sprinkled",
        "pattern",
        "file",
        "generator",
    ] = "uniform"
    low: float = field(default=-1.0, metadata=FINITE)
    high: float = field(default=1.0, metadata=FINITE)
    mean: float = field(default=0.0, metadata=FINITE)
    std: float = field(default=1.0, metadata=at_least(0))
    value: float = 0.0
    pattern: Literal["ramp", "steps", "alternating", "checkerboard", "identity"] = "ramp"
    path: str | None = None
    generator: str | None = None


@dataclass(frozen=True)
class Tensor(Digested):
    """A named array of a workload."""

    shape: tuple[int | str, ...]
    dtype: str | None = None
    fill: Fill = field(default_factory=Fill)
    place: str | None = None
    """Location at the start of the measurement: host, device or device:N; default: the device."""


@dataclass(frozen=True)
class Step(Digested):
    """One kernel call: each argument is bound to a tensor, a scalar or a size expression."""

    kernel: str
    args: Mapping[str, int | float | str] = field(default_factory=dict)
    """Bindings of arguments that differ from the argument's own name."""


@dataclass(frozen=True)
class SubmittedKernel(Digested):
    """A kernel that an orchestration submits."""

    kernel: str
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    """Size argument -> its usual value, by which parameters are chosen; default: the workload's
    size of that name."""


@dataclass(frozen=True)
class OwnOrchestration(Digested):
    """C++ that submits the tasks of a workload, in place of steps."""

    file: str
    """C++ below templates/."""
    kernels: Mapping[str, SubmittedKernel]
    """Name in the orchestration -> kernel."""
    access: Mapping[str, Literal["read", "write", "update"]] = field(default_factory=dict)
    """Use of tensors; default: those with a golden are written, the others are read."""


@dataclass(frozen=True)
class Tolerance(Digested):
    """|result - golden| <= atol + rtol * |golden| + ulp * (unit in the last place of the golden);
    each may be an expression over the sizes."""

    rtol: float | str = 0.0
    atol: float | str = 0.0
    ulp: float | str = 0.0


DEFAULT_TOLERANCE = {
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float64": Tolerance(rtol=1e-10, atol=1e-11),
}
EXACT = Tolerance(rtol=0.0, atol=0.0)
"""Tolerance of all other element types."""


@dataclass(frozen=True)
class SizeRange(Digested):
    """The values of a size that `check --fuzz` may draw."""

    low: int = field(default=1, metadata=at_least(0))
    """0 also allows the workload itself a size of zero; no extent of a tensor may be zero."""
    high: int | None = field(default=None, metadata=at_least(1))
    multiple: int = field(default=1, metadata=at_least(1))
    """Every value is a multiple of it."""


VALUES = (
    "fill",
    "uniform",
    "constant",
    "sorted",
    "extremes",
    "zeros",
    "tiny",
    "denormal",
    "huge",
    "nan",
    "inf",
)
"""Kinds of contents that `check --fuzz` may draw for a tensor."""
FLOAT_VALUES = ("tiny", "denormal", "huge", "nan", "inf")
"""Those that only tensors of floating-point numbers can have."""


@dataclass(frozen=True)
class Fuzzing(Digested):
    """What a workload must be right for, and `check --fuzz` may draw."""

    sizes: Mapping[str, SizeRange] = field(default_factory=dict)
    """Ranges of sizes; default: from 1 on."""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tensor -> kinds of contents; default: those within the range of its fill."""
    alignment: int | str = 64
    """Tensors begin at a multiple of so many bytes; may be an expression over `element`."""


@dataclass(frozen=True)
class Cost(Digested):
    """Operations and bytes of one run, as expressions over the sizes."""

    flops: int | str = 0
    bytes: int | str = 0


@dataclass(frozen=True)
class Workload(Digested):
    """Named tensors, sizes, and the kernel calls that connect them."""

    name: str
    sizes: Mapping[str, int | str]
    tensors: Mapping[str, Tensor]
    kernels: Mapping[str, Kernel]
    golden: Mapping[str, str]
    """Output tensor -> expression over the inputs, `FILE.py:FUNCTION` of the project, or the name
    of a registered reference."""
    steps: Mapping[str, Step] = field(default_factory=dict)
    orchestration: OwnOrchestration | None = None
    """In place of steps, for accelerators with a task runtime."""
    about: str = ""
    dtype: str = "float32"
    stateful: bool = False
    """Whether kernels keep state between calls: only the first call can be verified then."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    region: Mapping[str, str | tuple[int | str, ...]] = field(default_factory=dict)
    """Output tensor -> the part that is compared: a slice for each dimension, or a mask, written
    like a golden; default: all of it."""
    fuzz: Fuzzing = field(default_factory=Fuzzing)
    cost: Cost = field(default_factory=Cost)
    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Named changes to sizes, scalars and fills; `default` changes nothing."""
    allow: tuple[str, ...] = ()
    """Functions, libraries and groups of them that its kernels may import, beside those that every
    kernel may (native/kernel_imports.toml)."""

    def accesses(self) -> tuple[tuple[str, str], ...]:
        """Uses of tensors in order: read, write or update."""
        if self.orchestration:
            given = self.orchestration.access
            return tuple(
                (name, given.get(name) or ("write" if name in self.golden else "read"))
                for name in self.tensors
            )
        return tuple(
            (str(step.args.get(name, name)), argument.access)
            for step in self.steps.values()
            for name, argument in self.kernels[step.kernel].arguments.items()
            if argument.kind == "tensor"
        )

    def tolerance_for(self, dtype: str) -> Tolerance:
        """The workload's tolerance for an element type, or the default."""
        return self.tolerance.get(dtype) or DEFAULT_TOLERANCE.get(dtype, EXACT)


@dataclass(frozen=True)
class Emulator(Digested):
    """A program that executes programs of another machine."""

    program: str
    isa: str = ""
    """The emulated isa; programs of any other isa are refused."""
    args: tuple[str, ...] = ()
    minimum_version: str = ""
    install: Mapping[str, str] = field(default_factory=dict)
    """System -> install command."""
    lacks: tuple[str, ...] = ()
    """CPU features that are not emulated; `avx512*` matches all with that prefix."""


@dataclass(frozen=True)
class Machine(Digested):
    """What the programs of a variant run on, if not on this machine's own CPU."""

    isa: str = ""
    """The isa that its programs are built for; default: this machine's."""
    toolchain: str = ""
    """Name of a toolchain config; default: the experiment's toolchain."""
    emulator: Emulator | None = None
    platform: str = "sim"
    """The hardware as an accelerator's programs see it: a registered platform."""


@dataclass(frozen=True)
class Target(Digested):
    """Where a workload runs."""

    name: str
    family: Literal["host", "accelerator", "embedded"]
    device: str
    """Registered name of the device class."""
    sources: tuple[str, ...]
    """Families of kernel sources, by preference."""
    variant: str = "release"
    variants: tuple[str, ...] = ("release",)
    sanitized: tuple[str, ...] = SANITIZED
    """Variants that are built with a sanitizer: their times are not representative."""
    systems: tuple[str, ...] = ("linux",)
    emulator: Emulator | None = None
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """Variant -> its machine, where variants run on different ones."""
    sessions: int = field(default=0, metadata=at_least(0))
    """Maximum number of open sessions; 0: unlimited."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Further options of the device class."""
    about: str = ""

    @property
    def is_sanitized(self) -> bool:
        """Whether the programs are built with a sanitizer."""
        return self.variant in self.sanitized

    @property
    def machine(self) -> Machine:
        """The machine of its variant."""
        return self.machines.get(self.variant) or Machine()


@dataclass(frozen=True)
class Caches(Digested):
    """Cache sizes in bytes; size strings are allowed in YAML."""

    l1: int | str
    l2: int | str
    l3: int | str = 0


@dataclass(frozen=True)
class Arch(Digested):
    """Hardware as data."""

    name: str
    isa: str
    flags: Mapping[str, tuple[str, ...]]
    """Compiler flags for each toolchain family."""
    vector_bytes: int = field(metadata=at_least(4))
    registers: int = field(metadata=at_least(4))
    caches: Caches
    features: tuple[str, ...] = ()
    """CPU features that a host needs."""
    vector_bits: int | None = None
    """The vector length where it is a parameter; `vector_bytes` follows from it."""
    vector_lengths: tuple[int, ...] = ()
    """Allowed values of `vector_bits`."""
    memory: Mapping[str, int | str] = field(default_factory=dict)
    """Size in bytes of each memory of a part: ram, flash."""
    cores: int = field(default=1, metadata=at_least(1))
    topology: Topology | None = None
    """This and the sections below describe an accelerator; other arches have none of them."""
    clock: Clock | None = None
    hbm: Hbm | None = None
    sram: Sram | None = None
    mmu: Mmu | None = None
    dma: Dma | None = None
    links: Links | None = None
    compute: Compute | None = None
    control: Control | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Pattern of keys below `arch` -> measured, published or assumed; the first that fits."""
    micro_kernels: Mapping[str, MicroKernel] = field(default_factory=dict)
    """Functions for inner tiles of kernels (transform `catch`)."""
    about: str = ""

    @property
    def compiled(self) -> Arch:
        """The part that can affect what is compiled: without the data of an accelerator, which is
        read when a device is opened."""
        return self.derive(_compiled_part) if self.topology else self


def _compiled_part(arch: Arch) -> Arch:
    none: dict[str, Any] = dict.fromkeys(SECTIONS)
    return replace(arch, **none, provenance={}, about="")


@dataclass(frozen=True)
class Toolchain(Digested):
    """How sources are compiled."""

    name: str
    family: str
    tools: Mapping[str, str]
    flags: tuple[str, ...]
    """Flags of every compilation."""
    cxx_flags: tuple[str, ...] = ()
    """The same for C++."""
    kernel_flags: tuple[str, ...] = ()
    extra_flags: tuple[str, ...] = ()
    """The user's additional flags; empty by default."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    minimum_version: str = ""
    install: Mapping[str, str] = field(default_factory=dict)
    """System -> install command."""
    search: tuple[str, ...] = ()
    """Folders with its tools beside the PATH; `$NAME` is an environment variable."""
    about: str = ""


@dataclass(frozen=True)
class Ring(Digested):
    """Sizes of the rings of a runtime that executes tasks while others are still submitted."""

    slots: int = field(default=1024, metadata=between(1, 1 << 20))
    """Tasks of each scope depth that are submitted and not yet retired."""
    heap: int | str = "64MiB"
    """Bytes for the outputs of these tasks."""
    dependencies: int = field(default=4096, metadata=between(1, 1 << 24))
    """Dependency entries of these tasks."""
    depths: int = field(default=4, metadata=between(1, 64))
    """Scope depths with a ring of their own."""
    submissions: int = field(default=1 << 20, metadata=between(1, 1 << 26))
    """Tasks that an orchestration may submit; each block counts, and each task of a graph."""


@dataclass(frozen=True)
class GraphSizes(Digested):
    """Room for the graph of a runtime that executes tasks when all of them are known."""

    tasks: int = field(default=1 << 20, metadata=between(1, 1 << 26))
    """Tasks that an orchestration may submit; each block counts, and each task of a graph."""
    heap: int | str = "64MiB"
    """Bytes for their outputs."""
    edges: int = field(default=1 << 22, metadata=between(1, 1 << 28))
    """Dependencies among them."""


@dataclass(frozen=True)
class Runtime(Digested):
    """An accelerator's task runtime; every other target has `none`."""

    name: str
    ring: Ring | None = None
    """Only for runtimes with rings,"""
    graph: GraphSizes | None = None
    """and only for those with a graph."""
    queue: int | None = field(default=None, metadata=between(1, 64))
    """Tasks that a PE has at once: one runs, the others wait there; default: 2."""
    about: str = ""


@dataclass(frozen=True)
class Pipeline(Digested):
    """A graph of named stages; `kernloom.pipeline` reads and checks it."""

    name: str
    stages: Mapping[str, Mapping[str, Any]]
    about: str = ""


@dataclass(frozen=True)
class SelectSettings(Digested):
    """Providers of parameters, and their settings."""

    providers: tuple[str, ...] = ("fixed", "model")
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Transform -> tunable -> value, or transform -> step -> tunable -> value."""
    file: str | None = None
    python: str | None = None
    """Name of a function of another package, for the provider `python`."""


@dataclass(frozen=True)
class Policy(Digested):
    """A measuring policy."""

    name: str
    samples: int = field(metadata=between(1, 100_000))
    warmup: int = field(metadata=between(0, 1_000_000))
    min_rounds: int = field(metadata=between(1, 10_000))
    max_rounds: int = field(metadata=between(1, 10_000))
    min_sample_us: float = field(metadata=between(0, 60e6))
    """A sample's inner loop is repeated until it lasts this long."""
    bound: float = field(default=0.0, metadata=at_least(0))
    """Target relative half-width of the 95% confidence interval; 0: a single pass."""
    span_s: float = field(default=0.0, metadata=between(0, 86_400))
    """Seconds over which the least number of rounds is spread; 0: one after the other."""
    drift: float = field(default=0.0, metadata=between(0, 1))
    """Assumed standard deviation of times between episodes of the machine, until attempts show it;
    0: the interval is that of the rounds alone."""
    budget_s: float = field(default=60.0, metadata=at_least(0))
    clock: Literal["auto", "cpu", "wall"] = "auto"
    pin: bool = True
    scheduling: Literal["normal", "fifo"] = "normal"
    """`fifo`: real-time class while sampling, if the system permits it."""
    cache: Literal["warm", "cold"] = "warm"
    """`cold`: every tensor is flushed from the caches before each sample of one run."""
    aslr: bool = True
    """Random addresses per process; without them placement is the same in all rounds."""
    together: int = field(default=100, metadata=at_least(1))
    """Maximum number of variants that share interleaved rounds."""
    peers: tuple[str, ...] = ()
    """Other implementations of the workload, measured in the same rounds for a ratio."""
    floor: float = field(default=0.01, metadata=between(0, 1))
    """The smallest relative difference that compare reports as one."""
    about: str = ""


@dataclass(frozen=True)
class Experiment(Digested):
    """One composed, validated config: one point."""

    workload: Workload
    target: Target
    arch: Arch
    toolchain: Toolchain
    runtime: Runtime
    pipeline: Pipeline
    select: SelectSettings
    measure: Policy
    store: StoreSettings
    fleet: Mapping[str, Any]
    """Validated by the settings of its `kind`, which the fleet declares (`run.fleets`)."""
    sweep: SweepSettings
    build: BuildSettings
    screen: ScreenSettings = field(default_factory=ScreenSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    case: str = "default"
    seed: int = field(default=0, metadata=at_least(0))
    output: str = "table"
    """Name of a format (`report.formats`); each command states which formats it supports."""
    catch: Literal["on", "off"] = "on"
    """Whether micro-kernels and matrix units take inner tiles (transform `catch`)."""
    distribute: Literal["on", "off"] = "on"
    """Whether steps become tasks for all PEs of an accelerator (transform `distribute`)."""
    rerun: Literal["none", "failed", "all"] = "none"
    recipe: str | None = None
    trace: str | None = None
    """File for the trace of one run in virtual time."""
    trace_level: int = field(default=4, metadata=between(0, 4))
    """How much is traced: 0 the digest of the tasks only, 1 tasks, 2 also why they wait, 3 also
    transfers, 4 also messages."""
    deps: str | None = None
    """File for the dependencies among the tasks of one run."""
    replay: str | None = None
    """Name or number of a task that runs again alone, from a dump of its arguments."""
    whatif: str | tuple[str, ...] | None = None
    """Resources that cost nothing in repeated simulations of a run; `all`: each by itself."""
    timeout: float = field(default=60.0, metadata=at_least(0.001))
    memory_limit: int | str | None = None
    """Memory limit in bytes of a trial's tensors and its kernels' allocations; default: the
    available memory."""
    show: str | None = None

    @property
    def observed(self) -> str:
        """Which look into one run is asked for, as it is typed; empty: none."""
        given = {key: getattr(self, key) for key in OBSERVATIONS}
        return next((f"{key}={value}" for key, value in given.items() if value is not None), "")


OBSERVATIONS = ("trace", "deps", "replay")
"""Root keys that ask for a look into one run; nothing of it is stored."""
ROOT_KEYS = tuple(Experiment.__dataclass_fields__)
NOT_IDENTITY = (
    "output",
    "rerun",
    "recipe",
    "trace",
    "trace_level",
    "deps",
    "replay",
    "whatif",
    "store",
    "fleet",
    "sweep",
    "build",
    "screen",
    "search",
    "show",
)
"""Root keys that are not part of a trial's identity."""
LIMITS = ("timeout", "memory_limit")
"""Root keys that only affect whether a trial completes."""
