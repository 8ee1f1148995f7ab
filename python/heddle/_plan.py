"""The answer of `heddle plan`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ._frames import Library, frame, rows_as_columns
from ._read import Answer


@dataclass(frozen=True)
class Interval:
    """An estimate with the interval that the calibration's measurements give."""

    value: float
    low: float
    high: float
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Change:
    """A change to a job: its speed over that without it, memory of a device, words to add and remove."""

    change: str
    speed_ratio: float
    peak_bytes: float
    fits: bool
    add: list[str]
    remove: list[str]
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Words:
    """The plan as a trainer's command line takes it, or why that trainer can't run it."""

    trainer: str
    words: list[str]
    refusal: str
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class RankBytes:
    """Memory of the ranks at one place of the pipeline."""

    pipeline_rank: int
    ranks: int
    peak_bytes: float
    fits: bool
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Better:
    """What was found beside a script's or configuration's own plan."""

    layout: str
    schedule: str
    changes: list[str]
    speed_ratio: float
    tokens_per_s: float
    peak_bytes: float
    add: list[str]
    remove: list[str]
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """Another job that was estimated in the same way. `speed_ratio` is the job's speed over this one's.

    The figures are None where no plan was found.
    """

    subject: str
    fits: bool
    tokens_per_s: Optional[float] = None
    peak_bytes: Optional[float] = None
    speed_ratio: Optional[float] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class PlanAnswer(Answer):
    """What a job takes, whether it fits, how fast it is, what to change. Where `found` is False no plan fits.

    Bytes are a device's, rates those of the whole job.
    """

    subject: str
    kind: str
    model: str
    device: str
    devices: int
    trainer: str
    global_batch: int
    sequence: int
    precision: str
    assumed: list[str]
    notes: list[str]
    found: bool
    fits: bool
    memory_bytes: float
    searched: int
    stopped: bool
    seconds: float
    place: Optional[str] = None
    nothing_fits: Optional[dict[str, Any]] = None
    layout: str = ""
    schedule: str = ""
    stages: str = ""
    recompute: str = ""
    microbatch: int = 0
    parameters: float = 0
    active_parameters: float = 0
    training_flops_per_token: float = 0
    step_s: Optional[Interval] = None
    tokens_per_s: Optional[Interval] = None
    tokens_per_s_per_device: float = 0
    interval_from: str = ""
    model_flops_utilization: float = 0
    bound_by: str = ""
    bound_why: str = ""
    peak_bytes: float = 0
    bytes_are: str = ""
    ranks: list[RankBytes] = field(default_factory=list)
    memory_parts_bytes: dict[str, float] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    better: Optional[Better] = None
    beside: Optional[Beside] = None
    data: dict[str, Any] = field(repr=False, default_factory=dict)

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """A row a change: what it gains, its memory, the words of it."""
        return frame(rows_as_columns(self.data.get("changes", [])), library)
