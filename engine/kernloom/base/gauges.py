"""Gauges: the metrics that devices can measure, each declared once as data.

A device class lists its gauges. Measuring, ranking, screening, comparing, estimating and every
report read them here, so a new metric is one entry of this table. A device from another package
brings its own gauges, found by the package's entry point `kernloom.devices`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernloom.base.registry import Registry
from kernloom.base.units import number_text, three_digits, time_text, whole_number

Better = Literal["smaller", "larger"]


@dataclass(frozen=True)
class Metric:
    """A number of a trial, with its name, unit and text form."""

    name: str
    """Key in the metrics of a trial."""
    heading: str = ""
    """Heading of the column in tables."""
    unit: str = ""
    """Unit in exports; a plain count has none."""
    label: str = ""
    """Text after the value where there is no heading."""
    better: Better = "smaller"
    text: Callable[[float], str] = number_text
    spare: int = 0
    """Priority for leaving the column out of a narrow terminal, largest first; 0: never."""

    def with_label(self, value: float) -> str:
        """The value with its label: `1.20 ms`, `87,555 instructions`."""
        return " ".join(filter(None, (self.text(value), self.label)))

    def cost(self, value: float) -> float:
        """A number that is smaller for a better value, as optimisers expect."""
        return value if self.better == "smaller" else -value

    def gain(self, before: float, after: float) -> float:
        """Improvement factor of `after` over `before`: above 1 if it is better."""
        return before / after if self.better == "smaller" else after / before

    def best(self, values: Iterable[float]) -> float:
        return min(values) if self.better == "smaller" else max(values)


@dataclass(frozen=True)
class Gauge(Metric):
    """A metric that a device measures and that trials can be ranked by."""

    exact: bool = False
    """Equal in every run, so one run is enough; other gauges are sampled in rounds."""
    rank: int = 40
    """Trials are ranked by the gauge with the lowest rank among their metrics."""
    low: str = ""
    high: str = ""
    """Keys of the bounds of the confidence interval, if the gauge is sampled."""
    in_every_comparison: bool = False
    """Whether comparison documents have its keys even if it was not measured."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys in the metrics of a trial."""
        return tuple(filter(None, (self.name, self.low, self.high)))

    def with_interval(self, metrics: Mapping[str, Any]) -> str:
        """The value with half its confidence interval, `12.3 µs ±0.8%`; a single sample has no
        interval."""
        value = metrics.get(self.name)
        if value is None:
            return ""
        low, high = metrics.get(self.low), metrics.get(self.high)
        if low is None or high is None or not value or metrics.get("samples") == 1:
            return self.text(value)
        return f"{self.text(value)} ±{(high - low) / 2 / value * 100:.1f}%"


TIME = Gauge(
    name="median_ns",
    heading="time",
    unit="ns",
    text=time_text,
    rank=30,
    low="ci_low_ns",
    high="ci_high_ns",
    in_every_comparison=True,
)
"""Time of one run by the clock of the policy: the median of the processes' medians."""
VIRTUAL_TIME = Gauge(
    name="virtual_ns",
    heading="virtual",
    unit="ns",
    label="virtual",
    text=time_text,
    exact=True,
    rank=10,
)
"""Time of one run by a simulator's own clock."""
INSTRUCTIONS = Gauge(
    name="instructions",
    heading="instructions",
    label="instructions",
    text=whole_number,
    exact=True,
    rank=20,
    in_every_comparison=True,
)
"""Instructions executed by one run."""

SHIPPED = (TIME, VIRTUAL_TIME, INSTRUCTIONS)
"""Gauges in the order of their columns."""

GFLOPS = Metric("gflops", "GFLOP/s", "GFLOP/s", "GFLOP/s", "larger", three_digits, spare=2)
GBYTES_PER_S = Metric("gbytes_per_s", "GB/s", "GB/s", "GB/s", "larger", three_digits, spare=4)
ROOF_FRACTION = Metric("roof_fraction", "roof", better="larger", spare=4)
RATES = (GFLOPS, GBYTES_PER_S)
"""Metrics computed from a time and from the workload's stated cost."""
_ENDINGS = (
    *RATES,
    ROOF_FRACTION,
    Metric("ratio", better="larger"),
    Metric("_ns", unit="ns", text=time_text),
    Metric("_bytes", unit="B", label="B"),
)
"""Metrics that are not gauges, matched by the end of their names."""

USUAL_METRICS = (
    *(key for gauge in SHIPPED for key in gauge.keys),
    "min_ns",
    "wall_ns",
    "cpu_ns",
    *(metric.name for metric in RATES),
    "samples",
    "processes",
    "inner",
    "outlier_share",
    "rounds_low_ns",
    "rounds_high_ns",
    "drift",
    "involuntary_switches",
    "kernel_ns",
    "transfer_ns",
    "transfer_bytes",
)
"""Metric keys that most trials have."""
_COUNTED_LINKS = ("pcie", "io_cpu", "management", "noc", "sip", "hbm", "sram")
"""Links and memories of an accelerator whose bytes are counted."""
_OURS = frozenset(
    (
        *USUAL_METRICS,
        ROOF_FRACTION.name,
        *("deterministic", "peers", "ratio", "ci_low", "ci_high"),
        *("utilisation_matrix", "utilisation_vector"),
        *(
            f"{link}_bytes"
            for link in ("pcie", "io_cpu", "management", "noc", "sip", "hbm", "sram")
        ),
    )
)


class Gauges:
    """Every known gauge: the shipped ones, and those of devices that other packages add.

    The scan for packages is slow, so it runs only when a metric is seen that does not ship.
    """

    def __init__(self, shipped: Sequence[Gauge] = SHIPPED, group: str = "kernloom.devices") -> None:
        self._group = group
        self._learn(shipped)

    def _learn(self, gauges: Iterable[Gauge]) -> None:
        self._known = tuple(gauges)
        self._by_rank = tuple(sorted(self._known, key=lambda gauge: gauge.rank))

    def all(self, metrics: Iterable[str] = ()) -> tuple[Gauge, ...]:
        """Gauges in the order of their columns; scans packages if one of the metrics does not
        ship."""
        if self._group and not _OURS.issuperset(metrics):
            self._scan()
        return self._known

    def by_rank(self, metrics: Iterable[str]) -> tuple[Gauge, ...]:
        """The same gauges in ranking order."""
        self.all(metrics)
        return self._by_rank

    def _scan(self) -> None:
        devices: Registry[Any] = Registry("device", {}, group=self._group)
        self._group = ""
        found = {gauge.name: gauge for gauge in self._known}
        for name in devices.names():
            for gauge in getattr(devices.get(name, key="target.device"), "gauges", ()):
                found.setdefault(gauge.name, gauge)
        self._learn(found.values())


GAUGES = Gauges()


def leading_gauge(gauges: Iterable[Gauge]) -> Gauge:
    """The gauge that ranks the trials of a device with these gauges."""
    return min(gauges, key=lambda gauge: gauge.rank)


def ranking_gauge(metrics: Mapping[str, Any]) -> Gauge | None:
    """The gauge that ranks a trial with these metrics, if there is one."""
    for gauge in GAUGES.by_rank(metrics):
        if metrics.get(gauge.name) is not None:
            return gauge
    return None


def metric_rank(name: str) -> int:
    """The ranking order of a metric; a metric that is no gauge comes last."""
    return next((gauge.rank for gauge in GAUGES.all((name,)) if gauge.name == name), _LAST)


_LAST = 1 << 30


def metric_named(name: str, *, scan: bool = True) -> Metric | None:
    """The description of a metric, also of a nested one: `peers.numpy.median_ns`.

    Without `scan`, no packages are scanned: the name may not be a metric at all.
    """
    gauges = GAUGES.all((name.rpartition(".")[2],) if scan else ())
    known: tuple[Metric, ...] = (*gauges, *_ENDINGS)
    return next((metric for metric in known if name.endswith(metric.name)), None)
