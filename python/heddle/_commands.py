"""The functions of the module. Each equals a command of the program with --json."""

from __future__ import annotations

import csv
import os
import tempfile
from typing import Any, Callable, Literal, Mapping, Optional, Sequence, Union, overload

from . import _call
from ._call import Config
from ._errors import InputError
from ._plan import PlanAnswer
from ._progress import Progress, maker
from ._read import read
from ._results import (
    Inspection,
    MemoryOverStep,
    ModelFacts,
    Prediction,
    RunSummary,
    Schedule,
    ScriptAnswer,
    SearchResult,
    Simulation,
)
from ._runs import PathLike, step_of

Precision = Literal["bf16", "fp16", "fp8", "mxfp8", "block8", "nvfp4"]
Trainer = Literal["heddle", "megatron", "mindspeed"]
Step = dict[str, Any]


def plan(
    model: PathLike,
    cluster: Optional[PathLike] = None,
    devices: Optional[int] = None,
    *,
    global_batch: Optional[int] = None,
    sequence: Optional[int] = None,
    precision: Optional[Precision] = None,
    memory: Optional[str] = None,
    trainer: Optional[str] = None,
    routing: Optional[float] = None,
    imbalance: Optional[float] = None,
    set: Optional[Mapping[str, Any]] = None,
    calibration: Optional[PathLike] = None,
    beside: Optional[PathLike] = None,
    slower: Optional[float] = None,
    out: Optional[PathLike] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> PlanAnswer:
    """What a job takes, whether it fits, how fast it is, and what to change: `heddle plan`.

    model: a published model by name, a folder with its config.json, a launch script of Megatron-LM or MindSpeed, which
    is read and never run, or a configuration of Heddle.
    cluster: an accelerator by name, or a TOML file of a cluster; devices: how many of it.
    global_batch: sequences of a step. sequence: tokens of a sequence. memory: bytes of a device, such as "80GiB".
    set: variables of the script, or keys of the configuration. beside: another job to estimate in the same way;
    slower: per cent that the job may be slower than that one.
    """
    flags = _call.words(
        cluster=cluster, devices=devices, global_batch=global_batch, sequence=sequence, precision=precision,
        memory=memory, for_=trainer, routing=routing, imbalance=imbalance, calibration=calibration, beside=beside,
        slower=slower, out=out, threads=threads,
    )  # fmt: skip
    return read(PlanAnswer, _call.answer(["plan", *flags, *_call.settings(set)], os.fspath(model), progress=progress))


def search(
    model: PathLike,
    cluster: PathLike,
    devices: int,
    *,
    global_batch: int,
    sequence: int,
    precision: Optional[Precision] = None,
    memory: Optional[str] = None,
    routing: Optional[float] = None,
    restrict: Union[Mapping[str, Any], Sequence[str], None] = None,
    calibration: Optional[PathLike] = None,
    top: Optional[int] = None,
    short_list: Optional[int] = None,
    threads: Optional[int] = None,
    fewest: bool = False,
    heddle: bool = False,
    emit: Optional[Trainer] = None,
    explain: Optional[PathLike] = None,
    out: Optional[PathLike] = None,
    progress: Progress = None,
) -> SearchResult:
    """The best plans for a model on a cluster: `heddle search`.

    model: a published model by name, or a folder with its config.json. cluster: an accelerator by name, or a TOML file.
    global_batch: sequences of a step. sequence: tokens of a sequence. memory: bytes of a device, such as "80GiB".
    routing: relative deviation of the experts' loads. restrict: {"tp": "1,2", …}. fewest: on the fewest devices that
    train it, `devices` at most. emit: also the best plan as that trainer's input, in `emitted` or the file `out`.
    explain: an HTML file to write.
    """
    restricted = (
        [f"{key}={_call.text(each)}" for key, each in restrict.items()] if isinstance(restrict, Mapping) else restrict
    )
    flags = _call.words(
        model=model, cluster=cluster, devices=devices, global_batch=global_batch, sequence=sequence,
        precision=precision, memory=memory, routing=routing, restrict=list(restricted or []), calibration=calibration,
        top=top, short_list=short_list, threads=threads, fewest=fewest, heddle=heddle, emit=emit, explain=explain,
        out=out,
    )  # fmt: skip
    return read(SearchResult, _call.answer(["search", *flags], progress=progress))


def search_from(
    script: PathLike,
    cluster: Optional[PathLike] = None,
    devices: Optional[int] = None,
    *,
    memory: Optional[str] = None,
    imbalance: Optional[float] = None,
    set: Optional[Mapping[str, Any]] = None,
    calibration: Optional[PathLike] = None,
    emit: Optional[Trainer] = None,
    explain: Optional[PathLike] = None,
    out: Optional[PathLike] = None,
    progress: Progress = None,
) -> ScriptAnswer:
    """A launch script's job, and the best near it: `heddle search --from`.

    script: of Megatron-LM or MindSpeed; it is read and never run. set: variables that its environment sets.
    imbalance: rows of the fullest expert rank over the mean. emit: the better plan as that trainer's input.
    """
    flags = _call.words(
        from_=script, cluster=cluster, devices=devices, memory=memory, imbalance=imbalance, calibration=calibration,
        emit=emit, explain=explain, out=out,
    )  # fmt: skip
    return read(ScriptAnswer, _call.answer(["search", *flags, *_call.settings(set)], progress=progress))


def predict(
    points: Union[PathLike, Sequence[Mapping[str, Any]], Any],
    *,
    held_out: Optional[Literal["rows", "models", "sources", "devices"]] = None,
    groups: bool = False,
    calibration: Optional[PathLike] = None,
    memory_calibration: Optional[PathLike] = None,
    calibrate: Optional[PathLike] = None,
    calibrate_memory: Optional[PathLike] = None,
    progress: Progress = None,
) -> Prediction:
    """Throughput and memory of training runs, from closed forms: `heddle predict`.

    points: a CSV file, rows as mappings, or a data frame; docs/predict.md names the columns. held_out: predict each
    run by a calibration that has seen neither it nor any run of its model, source or device. groups: errors by maker,
    device and framework too. calibrate, calibrate_memory: files for what these runs' measurements give.
    """
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
        path = _points_file(points, folder)
        out = os.path.join(folder, "out.csv")
        flags = _call.words(
            points=path, out=out, held_out=held_out, groups=groups, calibration=calibration,
            memory_calibration=memory_calibration, calibrate=calibrate, calibrate_memory=calibrate_memory,
        )  # fmt: skip
        told = _call.answer(["predict", *flags], progress=progress)
        with open(out, encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
    told.update(points=path if isinstance(points, (str, os.PathLike)) else "", out="")  # files that are gone
    found = read(Prediction, told)
    found.table.extend(table)
    return found


def _points_file(points: Any, folder: str) -> str:
    if isinstance(points, (str, os.PathLike)):
        return os.fspath(points)
    rows: Any = points
    if hasattr(points, "to_dicts"):  # polars
        rows = points.to_dicts()
    elif hasattr(points, "to_dict"):  # pandas
        rows = points.to_dict("records")
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InputError("predict: points are a CSV file, rows as mappings, or a data frame with one row or more")
    path = os.path.join(folder, "points.csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(
            {key: "" if each is None or each != each else each for key, each in row.items()} for row in rows
        )
    return path


def simulate(
    config: Config,
    *,
    set: Optional[Mapping[str, Any]] = None,
    profile: Optional[PathLike] = None,
    ranks: Optional[int] = None,
    hosts: Optional[int] = None,
    routing: Union[str, float, None] = None,
    jitter: Optional[float] = None,
    draws: Optional[int] = None,
    seed: Optional[int] = None,
    trace: Optional[PathLike] = None,
    progress: Progress = None,
) -> Simulation:
    """A training step of a configuration on this machine, before it runs: `heddle simulate`.

    config: a TOML file, or its sections as a mapping. set: keys to set, {"train.steps": 100}. profile: what
    `heddle profile --out` wrote; without one this machine is measured once, for about 45 s. routing: "balanced", the
    relative deviation of the experts' shares, or a run. jitter: relative deviation of each op's time. trace: a file
    for Perfetto.
    """
    with _call.config_file(config) as path:
        flags = _call.words(
            profile=profile, ranks=ranks, hosts=hosts, routing=routing, jitter=jitter, draws=draws, seed=seed,
            trace=trace,
        )  # fmt: skip
        return read(Simulation, _call.answer(["simulate", *_call.settings(set), *flags], path, progress=progress))


@overload
def inspect(config: Config, *, set: Optional[
    Mapping[str, Any]
] = ..., cache: Optional[int] = ..., html: Optional[
    PathLike
] = ..., progress: Progress = ...,
) -> Inspection: ...  # fmt: skip


@overload
def inspect(config: None = ..., *, model: str) -> ModelFacts: ...


def inspect(
    config: Optional[Config] = None,
    *,
    model: Optional[str] = None,
    set: Optional[Mapping[str, Any]] = None,
    cache: Optional[int] = None,
    html: Optional[PathLike] = None,
    progress: Progress = None,
) -> Union[Inspection, ModelFacts]:
    """Parameters, FLOPs and memory of a configuration, or of a published model by its name: `heddle inspect`.

    config: a TOML file, or its sections as a mapping. set: keys to set. cache: with the cache of so many texts, as
    generation has it. html: a file for the page. Nothing of the model is allocated. `to_frame()` of the answer gives
    bytes by kind over a step.
    """
    if model is not None:
        if config is not None:
            raise InputError("inspect: both a configuration and model=; accepted: one of them")
        return read(ModelFacts, _call.answer(["inspect", f"--model={model}"]))
    if config is None:
        raise InputError("inspect: neither a configuration nor model=; accepted: one of them")
    with _call.config_file(config) as path:
        flags = _call.words(cache=cache, html=html)
        told = _call.answer(["inspect", *_call.settings(set), *flags], path, progress=progress)
    found = read(Inspection, told)
    found.over_step.extend(read(MemoryOverStep, each) for each in told["memory"].get("over_step", []))
    return found


def schedule(
    name: PathLike,
    *,
    ranks: Optional[int] = None,
    microbatches: Optional[int] = None,
    chunks: Optional[int] = None,
    group: Optional[int] = None,
    times: Optional[Sequence[float]] = None,
    a2a: Optional[float] = None,
    layout: Optional[str] = None,
    memory: Optional[Sequence[float]] = None,
    buffers: Optional[int] = None,
    cap: Optional[Sequence[float]] = None,
    effort: Optional[float] = None,
    progress: Progress = None,
) -> Schedule:
    """A pipeline schedule made or read, proved, timed and drawn: `heddle schedule`.

    name: such as "1f1b", a file with the text of one, or "synthesis". times: forward, input gradient and weight
    gradient of all layers of a rank, in any unit; then a fused pair's, and a message's. memory: what a microbatch keeps
    until its input gradient, and until its weight gradient. cap: for synthesis, the room of each rank, in that unit.
    """
    flags = _call.words(
        ranks=ranks, microbatches=microbatches, chunks=chunks, group=group, times=_joined(times), a2a=a2a,
        layout=layout, memory=_joined(memory), buffers=buffers, cap=_joined(cap), effort=effort,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
        picture = os.path.join(folder, "schedule.svg")
        told = _call.answer(["schedule", *flags, f"--svg={picture}"], os.fspath(name), progress=progress)
        with open(picture, encoding="utf-8") as file:
            drawn = file.read()
    found = read(Schedule, told)
    object.__setattr__(found, "svg", drawn)
    return found


def schedule_names() -> dict[str, str]:
    """Names of the schedules, with what each is."""
    return {each["schedule"]: each["what"] for each in _call.answer(["schedule"])}


def _joined(numbers: Optional[Sequence[float]]) -> Optional[str]:
    return None if numbers is None else ",".join(_call.text(each) for each in numbers)


def train(
    config: Config,
    *,
    set: Optional[Mapping[str, Any]] = None,
    steps: Optional[int] = None,
    minutes: Optional[float] = None,
    ranks: Optional[int] = None,
    mode: Optional[Literal["auto", "save-memory", "overlap"]] = None,
    profile: Optional[PathLike] = None,
    resume: bool = False,
    trace: bool = False,
    mlflow: Optional[PathLike] = None,
    on_step: Union[Callable[[Step], Optional[bool]], Sequence[Callable[[Step], Optional[bool]]], None] = None,
    progress: Progress = None,
) -> RunSummary:
    """Trains a model in this process: `heddle train`. Ranks are threads.

    config: a TOML file, or its sections as a mapping. set: keys to set, {"train.learning_rate": 1e-3}.
    on_step: functions that are called after each step with its figures by key ("step", "lm_loss", …;
    docs/reference.md has all). Training waits for them. One that returns False ends the run after this step, with a checkpoint; so does
    an exception, which is raised when the run has ended. Without GIL the steps run while other threads work.
    KeyboardInterrupt ends the run after the step under way: the summary has `interrupted`.
    progress: a bar of steps.
    """
    hooks = [] if on_step is None else [on_step] if callable(on_step) else list(on_step)
    make = maker(progress)
    bar: Any = make(total=steps, desc="training", unit="step") if make else None

    def tell(line: bytes) -> bool:
        figures = step_of(line)
        if bar is not None:
            bar.update(1)
            if hasattr(bar, "set_postfix") and "lm_loss" in figures:
                bar.set_postfix(loss=figures["lm_loss"])
        goes_on = True
        for hook in hooks:
            goes_on = hook(figures) is not False and goes_on
        return goes_on

    flags = _call.words(
        steps=steps, minutes=minutes, ranks=ranks, mode=mode, profile=profile, resume=resume, trace=trace,
        mlflow=mlflow, quiet=True,
    )  # fmt: skip
    try:
        with _call.config_file(config) as path:
            told = _call.answer(["train", *_call.settings(set), *flags], path, step=tell, gently=True)
    finally:
        if bar is not None:
            bar.close()
    found = read(RunSummary, told)
    named = ("folder", "checkpoint", "report", "weights_digest", "first_step", "steps", "interrupted")
    found.figures.update({key: value for key, value in told.items() if key not in named})
    return found
