"""The results of heddle's functions. Attributes have the names of the command's JSON, which `data` holds as it is.

Units stand in the names: `_s` and `_seconds` are seconds, `_bytes` bytes, `_us` microseconds; rates are per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ._frames import Library, frame, rows_as_columns
from ._read import Answer


@dataclass(frozen=True)
class Plan:
    """A plan of a job: its layout, what it keeps, and what a step takes by it. Bytes are a device's."""

    tp: int
    cp: int
    pp: int
    vpp: int
    dp: int
    ep: int
    etp: int
    schedule: str
    microbatch: int
    context: str
    context_inner: int
    recompute: str
    shard: str
    shard_ranks: int
    offload: bool
    dispatcher: str
    by_stage: list[str]
    optimizer: str
    master: str
    weights: str
    gradients: str
    replicas: str
    layers: list[int]
    step_s: float
    step_low_s: float
    step_high_s: float
    p99_step_s: float
    simulated_step_s: float
    tokens_per_s_per_device: float
    model_flops_utilization: float
    peak_bytes: float
    host_bytes: float
    program_live_bytes: float
    program_reserved_bytes: float
    exposed_communication_s: float
    bubble_s: float
    estimated_step_s: float
    imbalance_p50: float
    imbalance_p99: float
    waterfall_s: dict[str, float]
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class SearchResult(Answer):
    """The best plans, the fastest first, and how they were found."""

    plans: list[Plan]
    estimated: int
    layouts: int
    fitting: int
    passed_over: int
    timed_exactly: int
    timed_by_stage: int
    estimate_s: float
    exact_s: float
    threads: int
    estimates_per_s_per_core: float
    memory_bytes: float
    stopped: bool
    calibration_scale: float
    calibration_from: str
    not_considered: list[str]
    fewest: Optional[dict[str, int]] = None
    emitted: Optional[str] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def best(self) -> Optional[Plan]:
        """The fastest plan; None where nothing fits."""
        return self.plans[0] if self.plans else None

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """A row a plan; seconds of the parts of a step are columns such as waterfall_s.products."""
        rows = []
        for plan in self.data["plans"]:
            row = {key: value for key, value in plan.items() if key != "waterfall_s"}
            row.update({f"waterfall_s.{key}": value for key, value in plan["waterfall_s"].items()})
            rows.append(row)
        return frame(rows_as_columns(rows), library)


@dataclass(frozen=True)
class Neighbour:
    """One change to a job: the step's duration over that without it, and whether the job still fits."""

    change: str
    step_ratio: float
    fits: bool
    why: str
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A job as it is, estimated: step, interval, memory of a device, what bounds it, and its neighbours."""

    devices: int
    device: str
    tp: int
    cp: int
    dp: int
    pp: int
    vpp: int
    ep: int
    etp: int
    microbatch: int
    schedule: str
    layout: str
    step_s: float
    step_low_s: float
    step_high_s: float
    tokens_per_s_per_device: float
    peak_bytes: float
    fits: bool
    bound_by: str
    bound_why: str
    step_parts_s: dict[str, float]
    memory_bytes: dict[str, float]
    neighbours: list[Neighbour]
    simulated_step_s: Optional[float] = None
    program_live_bytes: Optional[float] = None
    program_reserved_bytes: Optional[float] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class ScriptAnswer(Answer):
    """A launch script's job, and the best found near it. `step_ratio` is the best step over the script's."""

    script: str
    dialect: str
    notes: list[str]
    unknown_flags: list[str]
    undescribed_flags: list[str]
    unestimated_flags: list[str]
    job: Job
    changes: list[str]
    step_ratio: float
    searched: int
    best: Job
    lost: Optional[list[str]] = None
    nothing_fits: Optional[dict[str, Any]] = None
    emitted: Optional[str] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """Two rows: the script's job and the best, with the plain numbers of each."""
        rows = []
        for name in ("job", "best"):
            row = {"which": name}
            row.update({key: value for key, value in self.data[name].items() if not isinstance(value, (dict, list))})
            rows.append(row)
        return frame(rows_as_columns(rows), library)


@dataclass(frozen=True)
class MemoryOverStep:
    """Bytes of one memory over a training step. `bytes[kind][i]` lives at `at_seconds[i]`."""

    memory: str
    until_seconds: float
    persistent_bytes: int
    peak: dict[str, Any]
    at_seconds: list[float]
    bytes: dict[str, list[int]]
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """A row a moment: at_seconds, then a column of bytes for each kind of value."""
        return frame({"at_seconds": self.at_seconds, **self.bytes}, library)


@dataclass(frozen=True)
class Inspection(Answer):
    """Parameters, FLOPs and memory of a configuration. Nothing of it was run or allocated."""

    name: str
    dtype: str
    parameters: dict[str, Any]
    flops_per_token: dict[str, Any]
    mesh: dict[str, int]
    ranks: list[dict[str, Any]]
    tokens_per_step: int
    memory: dict[str, Any]
    over_step: list[MemoryOverStep] = field(default_factory=list)
    optimizer_homes: Optional[list[dict[str, Any]]] = None
    masters: Optional[dict[str, int]] = None
    budget: Optional[dict[str, Any]] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether the fullest rank fits into its memory."""
        return bool(self.memory["fits"])

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the fullest rank reserves."""
        return int(self.memory["reserved_bytes"])

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """Bytes by kind over a step of the fullest rank's device, a row a moment."""
        return self.over_step[0].to_frame(library)


@dataclass(frozen=True)
class ModelFacts(Answer):
    """Parameters and FLOPs of a published model. FLOPs are those of training, at 4,096 and 8,192 tokens a sequence."""

    model: str
    parameters: int
    active: int
    training_flops_per_token_4096: float
    training_flops_per_token_8192: float
    parameters_with_mtp: Optional[int] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """One row."""
        return frame(rows_as_columns([self.data]), library)


@dataclass(frozen=True)
class Simulation(Answer):
    """A training step of all ranks, before it runs. Bytes are the fullest rank's."""

    name: str
    layout: str
    step_seconds: float
    tokens_per_s: float
    model_flops: float
    mfu: float
    exposed_seconds: dict[str, float]
    bubble_seconds: float
    host_seconds: float
    persistent_bytes: int
    peak_live_bytes: int
    reserved_bytes: int
    caching_allocator_bytes: int
    exchange: str
    draws: dict[str, Any]
    ranks: list[dict[str, Any]]
    at_peak: list[dict[str, Any]]
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """A row a rank that differs from the others: seconds and bytes."""
        rows = [
            {key: value for key, value in rank.items() if not isinstance(value, (dict, list))} for rank in self.ranks
        ]
        return frame(rows_as_columns(rows), library)


@dataclass(frozen=True)
class Errors:
    """Relative errors of predictions of so many rows, and the part of them whose interval covers the measurement.

    beside: errors of simpler predictors, where they were computed.
    """

    rows: int
    median: float
    p90: float
    covered: float
    beside: Optional[dict[str, dict[str, float]]] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Prediction(Answer):
    """Throughput and memory of runs from closed forms. `table` has the runs with predictions as further columns."""

    points: str
    out: str
    rows: int
    predicted: int
    complete: int
    complete_predicted: int
    calibrated_by: int
    calibration_in_use: Errors
    memory_in_use: Errors
    held_out_rows: Errors
    held_out_models: Errors
    held_out_sources: Errors
    held_out_devices: Errors
    memory_held_out_rows: Errors
    memory_held_out_models: Errors
    memory_held_out_sources: Errors
    memory_held_out_devices: Errors
    memory_printed_held_out_rows: Errors
    memory_printed_held_out_models: Errors
    memory_printed_held_out_sources: Errors
    memory_printed_held_out_devices: Errors
    groups: list[dict[str, Any]]
    layout_sweep_rank_correlation: float
    table: list[dict[str, str]] = field(repr=False, default_factory=list)
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """A row a run; predictions are numbers, NaN where there is none, and `reason` says why."""
        columns: dict[str, list[Any]] = rows_as_columns(self.table)
        for key in columns:
            if key.startswith("predicted_"):
                columns[key] = [float(each) if each else float("nan") for each in columns[key]]
        return frame(columns, library)


@dataclass(frozen=True)
class Schedule(Answer):
    """A pipeline schedule, proved and timed in the unit of the times that were given. A notebook shows its picture."""

    schedule: str
    what: str
    source: str
    ranks: int
    stages: int
    microbatches: int
    parameter_copies: int
    times: dict[str, float]
    makespan: float
    span: float
    work: float
    bubble_synchronous: float
    bubble_staggered: float
    bubble_synchronous_time: float
    bubble_staggered_time: float
    efficiency: float
    peak: list[float]
    peak_for_weight_grad: list[float]
    least_buffers: int
    most_early: int
    sums_in_order: bool
    order: list[str]
    synthesis: Optional[dict[str, Any]] = None
    svg: str = field(repr=False, default="")
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def _repr_svg_(self) -> str:
        return self.svg

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """A row a rank: its peak of activations, the part kept for weight gradients, its order."""
        return frame(
            {
                "rank": list(range(self.ranks)),
                "peak": self.peak,
                "peak_for_weight_grad": self.peak_for_weight_grad,
                "order": self.order,
            },
            library,
        )


@dataclass(frozen=True)
class RunSummary(Answer):
    """What a training run came to. `figures` holds every figure of it (docs/reference.md)."""

    folder: str
    checkpoint: str
    report: str
    weights_digest: str
    first_step: int
    steps: int
    interrupted: bool
    figures: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """One row with the plain figures."""
        plain = {key: value for key, value in self.data.items() if not isinstance(value, (dict, list))}
        return frame(rows_as_columns([plain]), library)
