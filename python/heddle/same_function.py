"""A test of a parallel trainer: is its step, on ranks of this machine, the same function as on one rank?

    from heddle.same_function import Place, Step, assert_same_function

    def build_model(place: Place) -> Step:                # on each rank, once torch.distributed runs
        model = MyModel(place.groups.get("tp"))
        def backward(ids):                                # [sequences, sequence_length + 1], of this rank's dp
            loss = model.loss(ids[:, :-1], ids[:, 1:])
            loss.backward()
            return loss
        return Step(model, backward, reduce=lambda: sum_gradients(model, place.groups), tap={"cuts": PLAIN_CUTS})

    def test_my_layout():
        assert_same_function(build_model, layout={"tp": 2, "dp": 2}, config=CONFIG)

The ranks are processes of Gloo on the CPU. heddle.tap writes what they compute and `heddle check` compares. The file needs
PyTorch, safetensors and the program heddle: where the module is not installed, copy it and tap.py beside the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

try:
    from .tap import STATED, Tap, TapError
except ImportError:  # copied beside the tests
    from tap import STATED, Tap, TapError  # type: ignore[import-not-found, no-redef]

EQUAL, NOT_EQUAL = 0, 3  # exit status of `heddle check`


@dataclass
class Place:
    """A rank's coordinates. Along the ranks tp runs fastest, then cp, dp, pp; of the same ranks etp, then ep, edp, pp."""

    rank: int
    mesh: Dict[str, int]  # degrees of tp, cp, dp, pp, ep, etp, edp
    at: Dict[str, int]  # this rank's coordinates
    groups: Dict[str, Any] = field(default_factory=dict)  # a process group for each axis that is longer than 1
    seed: int = 0  # the same on all ranks: draw the whole weight and keep a part


def no_reduction() -> None:
    """For a trainer that reduces in its backward pass."""


@dataclass
class Step:
    """A rank's trainer. `backward(ids)` runs forward and backward of a microbatch and returns its loss, so that the sum of
    the losses over microbatches, dp and cp is the step's mean. `reduce()` reduces the gradients. `tap`: arguments of Tap."""

    model: nn.Module
    backward: Callable[[Tensor], Any]
    reduce: Callable[[], None] = no_reduction
    tap: Mapping[str, Any] = field(default_factory=dict)


def axes_of(layout: Mapping[str, int]) -> Tuple[List[Tuple[str, int]], List[Tuple[str, int]]]:
    """Degrees of both folds of the ranks, the fastest axis first."""
    for axis, degree in layout.items():
        if axis not in STATED or not isinstance(degree, int) or degree < 1:
            raise TapError(f"layout: {axis} = {degree!r}; whole degrees of {', '.join(STATED)} are accepted")
    tp, cp, dp, pp, ep, etp = (layout.get(axis, 1) for axis in STATED)
    if tp * cp * dp % (ep * etp):
        raise TapError(f"layout: ep {ep} × etp {etp}: a divisor of tp × cp × dp = {tp * cp * dp} is accepted")
    dense = [("tp", tp), ("cp", cp), ("dp", dp), ("pp", pp)]
    return dense, [("etp", etp), ("ep", ep), ("edp", tp * cp * dp // (ep * etp)), ("pp", pp)]


def _coordinates(rank: int, fold: Sequence[Tuple[str, int]]) -> Dict[str, int]:
    at = {}
    for axis, degree in fold:
        at[axis], rank = rank % degree, rank // degree
    return at


def _place(rank: int, layout: Mapping[str, int], seed: int) -> Place:
    folds = axes_of(layout)
    mesh = {axis: degree for fold in folds for axis, degree in fold}
    ranks = dist.get_world_size()
    at = {axis: number for fold in folds for axis, number in _coordinates(rank, fold).items()}
    groups: Dict[str, Any] = {}
    for fold in folds:
        for axis, degree in fold:
            if degree == 1 or (axis == "pp" and fold is folds[1]):
                continue
            members: Dict[Tuple[int, ...], List[int]] = {}
            for other in range(ranks):
                rest = tuple(number for name, number in _coordinates(other, fold).items() if name != axis)
                members.setdefault(rest, []).append(other)
            for listed in members.values():  # all ranks make all groups, in one order
                group = dist.new_group(listed)
                if rank in listed:
                    groups[axis] = group
    return Place(rank, mesh, at, groups, seed)


def _run_rank(rank: int, ranks: int, folder: str, build_model: Callable[[Place], Step], layout: Mapping[str, int],
              tap: Dict[str, Any], vocabulary: int, seed: int) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
        place = _place(rank, layout, seed)
        torch.manual_seed(seed)
        step = build_model(place)
        microbatches, sequences, length = tap["microbatches"], tap["sequences"], tap["sequence_length"]
        axes = ("tp", "cp", "dp", "pp") if place.mesh["ep"] * place.mesh["etp"] == 1 else tuple(place.mesh)
        one = Tap(f"{folder}/dump", step.model, mesh=place.mesh, at={axis: place.at[axis] for axis in axes}, **{**tap, **step.tap})
        dp = place.mesh["dp"]
        tokens = torch.randint(vocabulary, (dp * microbatches * sequences, length + 1), generator=torch.Generator().manual_seed(seed))
        one.start(tokens)
        loss = torch.zeros((), dtype=torch.float64)
        for m in range(microbatches):
            with one.microbatch(m):
                loss += torch.as_tensor(step.backward(tokens.view(microbatches, dp, sequences, -1)[m, place.at["dp"]])).detach()
        step.reduce()
        one.gradients()
        for axis in ("cp", "dp"):
            if axis in place.groups:
                dist.all_reduce(loss, group=place.groups[axis])
        one.norms(loss=loss if place.at["pp"] == place.mesh["pp"] - 1 else None)
        one.write()
        dist.destroy_process_group()
    except BaseException:
        with open(f"{folder}/error-{rank}", "w", encoding="utf-8") as file:
            file.write(traceback.format_exc())
        os._exit(1)


def _program(given: Optional[str]) -> List[str]:
    found = given or os.environ.get("HEDDLE") or shutil.which("heddle")
    return [found] if found else [sys.executable, "-m", "heddle"]


def assert_same_function(
    build_model: Callable[[Place], Step],
    layout: Mapping[str, int],
    *,
    config: Any,
    sequence_length: int = 16,
    sequences: int = 1,
    microbatches: int = 2,
    seed: int = 1,
    report: Optional[str] = None,
    dump: Optional[str] = None,
    program: Optional[str] = None,
    timeout: float = 300,
) -> None:
    """Fails with `heddle check`'s text where the step of a layout is not that of one rank.

    build_model   a function of a Place that gives the rank's Step; it is called in a child process of each rank
    layout        degrees, such as {"tp": 2, "dp": 2, "ep": 2}; absent ones are 1
    config        config.json as a dict, or Transformers' object: the model as Heddle reads it
    report        write the check's page to this file, to attach to an issue
    dump          keep the ranks' dump in this folder
    program       the program heddle; otherwise $HEDDLE, the one on the path, or the installed module's
    timeout       seconds for the ranks, and for the check

    AssertionError: not the same function. TapError: a layout, a name or a shape does not fit. RuntimeError: a rank failed.
    """
    vocabulary = int(config["vocab_size"] if isinstance(config, Mapping) else config.vocab_size)
    dense, _ = axes_of(layout)
    ranks = 1
    for _, degree in dense:
        ranks *= degree
    tap = {"config": config, "sequence_length": sequence_length, "sequences": sequences, "microbatches": microbatches}
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")  # build_model may be any function of the test
        children = [context.Process(target=_run_rank, args=(rank, ranks, folder, build_model, layout, tap, vocabulary, seed))
                    for rank in range(ranks)]
        for child in children:
            child.start()
        _wait(children, folder, timeout)
        done = subprocess.run([*_program(program), "check", f"{folder}/dump", *(["--report", report] if report else [])],
                              capture_output=True, text=True, timeout=timeout)
        if dump is not None:
            shutil.copytree(f"{folder}/dump", dump, dirs_exist_ok=True)
    if done.returncode == NOT_EQUAL:
        raise AssertionError(done.stdout)
    if done.returncode != EQUAL:
        raise TapError(done.stderr.strip())


def _wait(children: Sequence[Any], folder: str, timeout: float) -> None:
    """Until all ranks have ended. Where one fails the others would wait for it, so they are ended."""
    from multiprocessing.connection import wait
    from time import monotonic

    until = monotonic() + timeout
    left = list(children)
    while left and monotonic() < until and all(child.exitcode in (None, 0) for child in children):
        wait([child.sentinel for child in left], timeout=max(0.0, until - monotonic()))
        left = [child for child in left if child.exitcode is None]
    failed = [rank for rank, child in enumerate(children) if child.exitcode not in (None, 0)]
    for child in left:
        child.kill()
        child.join()
    for rank in failed:
        path = f"{folder}/error-{rank}"
        text = open(path, encoding="utf-8").read() if os.path.exists(path) else f"exit status {children[rank].exitcode}"
        raise RuntimeError(f"rank {rank} failed:\n{text}")
    if left:
        raise RuntimeError(f"{len(left)} of {len(children)} ranks have not ended within {timeout:g} s")
