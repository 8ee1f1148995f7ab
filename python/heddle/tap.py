"""Writes what a training step computes on each rank, as a folder that `heddle check` and `heddle part` read.

    from heddle.tap import Tap

    tap = Tap("dump", model, config=config, mesh={"tp": 2, "dp": 2}, at={"tp": tp_rank, "dp": dp_rank},
              sequence_length=32, microbatches=2, cuts=PLAIN_CUTS)
    tap.start(tokens)                    # before the step: weights, and the tokens of all ranks
    for m in range(2):
        with tap.microbatch(m):          # outputs of modules, and their gradients
            backward(loss_of(m))
    reduce_gradients()
    tap.gradients()
    tap.norms(loss=loss, grad_norm=norm)
    tap.write()

The file needs PyTorch and safetensors alone: where heddle is not installed, copy it beside the trainer. All ranks
write into one folder. Every rank makes the same calls: `start` and `write` wait for all ranks of torch.distributed.
megatron_tap.py taps Megatron-Core. docs/howto/check.md describes the folder and how to tap other trainers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

AXES = ("tp", "cp", "dp", "pp", "ep", "etp", "edp")
STATED = ("tp", "cp", "dp", "pp", "ep", "etp")  # degrees of layout.json; edp follows
DTYPES = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16"}

#: The dim of each weight that tp cuts (etp, of experts) in a trainer that cuts products as Megatron does.
PLAIN_CUTS = {
    r"(q|k|v|gate|up)_proj\.(weight|bias)$": 0,
    r"(o|down)_proj\.weight$": 1,
    r"(embed_tokens|lm_head)\.weight$": 0,
}

Range = List[int]
Pieces = Callable[[str, Tensor], Optional[List["Piece"]]]

_LAYER = r"model\.layers\.\d+"
_OUTPUTS = re.compile(
    rf"(model\.embed_tokens|model\.norm|lm_head|{_LAYER}"
    rf"|{_LAYER}\.(input_layernorm|post_attention_layernorm|self_attn\.[qkvo]_proj|mlp"
    r"|mlp\.(gate|gate_proj|up_proj|down_proj|experts|shared_experts)))$"
)
# The inputs of a module are the outputs of something that is no module.
_INPUTS = [
    (re.compile(rf"({_LAYER}\.self_attn)\.o_proj$"), [r"\1.core"]),
    (re.compile(rf"({_LAYER}\.mlp)\.down_proj$"), [r"\1.act"]),
    (re.compile(rf"({_LAYER})\.post_attention_layernorm$"), [r"\1.attention_residual"]),
    (re.compile(rf"({_LAYER}\.self_attn)\.core_attention$"), [r"\1.q_rotated", r"\1.k_rotated", r"\1.v_proj"]),
]


class TapError(ValueError):
    """Something does not fit together: the text names the tensor, what was found, and what is accepted."""


@dataclass
class Piece:
    """The part of one released tensor that a rank's parameter holds."""

    name: str
    of: List[int]  # shape of the whole tensor
    at: List[Any]  # of each dim: [begin, end], or a list of such ranges
    take: Callable[[Tensor], Tensor] = lambda local: local  # the part's elements out of the parameter


def zigzag(length: int, index: int, cp: int) -> List[Range]:
    """Positions of a rank of context parallelism: two chunks, the same number from either end (Megatron's order)."""
    if cp == 1:
        return [[0, length]]
    if length % (2 * cp):
        raise TapError(f"sequence_length {length}: a multiple of 2 × cp = {2 * cp} is accepted")
    chunk = length // (2 * cp)
    return [[i * chunk, (i + 1) * chunk] for i in (index, 2 * cp - 1 - index)]


def _local(tensor: Tensor) -> Tensor:
    local: Tensor = getattr(tensor, "to_local")() if hasattr(tensor, "to_local") else tensor
    return local


def _summed(tensor: Any) -> Any:
    """A DTensor whose ranks hold parts of a sum, after that sum. All ranks call it, in one order."""
    if not any(placement.is_partial() for placement in getattr(tensor, "placements", ())):
        return tensor
    from torch.distributed.tensor import Replicate

    return tensor.redistribute(placements=[Replicate() if p.is_partial() else p for p in tensor.placements])


def _box(tensor: Any, name: str) -> List[Range]:
    """The ranges of a DTensor that this rank holds."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if any(placement.is_partial() for placement in tensor.placements):
        raise TapError(f"{name}: {tensor.placements}: Shard and Replicate are accepted; reduce it first")
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return [[first, first + count] for first, count in zip(offset, shape)]


def _count(at: Any) -> int:
    return sum(end - begin for begin, end in at) if isinstance(at[0], (list, tuple)) else at[1] - at[0]


def split_experts(name: str, of: Sequence[int], box: Sequence[Range]) -> Optional[List[Piece]]:
    """Experts in one tensor, [E, 2F, H] or [E, H, F] as Transformers has them: a piece for each released weight."""
    found = re.match(rf"({_LAYER}\.mlp\.experts)\.(gate_up_proj|down_proj)$", name)
    if not found or len(of) != 3:
        return None
    halves = ["gate_proj", "up_proj"] if found[2] == "gate_up_proj" else ["down_proj"]
    rows = of[1] // len(halves)
    pieces = []
    for expert in range(*box[0]):
        for half, word in enumerate(halves):
            begin, end = max(box[1][0], half * rows), min(box[1][1], (half + 1) * rows)
            if begin >= end:
                continue

            def take(local: Tensor, e: int = expert - box[0][0], r: int = begin - box[1][0], n: int = end - begin) -> Tensor:
                return local[e, r : r + n]

            at = [[begin - half * rows, end - half * rows], list(box[2])]
            pieces.append(Piece(f"{found[1]}.{expert}.{word}.weight", [rows, of[2]], at, take))
    return pieces


class Tap:
    """One step of one rank.

    model            the rank's module, with parameters called as in a released checkpoint, or `rename` to do that
    config, toml, megatron   exactly one: config.json as a dict or Transformers' object; Heddle's TOML; Megatron's arguments
    mesh, at         degrees and this rank's coordinates of tp, cp, dp, pp, ep, etp, edp; absent ones are 1 and 0
    cuts             {pattern of a released name: dim}: which dim tp cuts (etp, of experts). DTensors say it themselves
    pieces           a function of name and parameter that gives its pieces, or None for the usual way
    positions        ranges of the sequence on this rank; zigzag() of cp unless given
    local_scale      what backward gives, over the gradient of the step's loss: the degree of dp where a mean over dp follows
    loss             "tokens": the mean over all labels; "microbatches": the mean over means of microbatches
    optimizer        AdamW's lr, beta1, beta2, eps, weight_decay, clip_norm; needed for weights()
    """

    def __init__(
        self,
        folder: Union[str, "os.PathLike[str]"],
        model: nn.Module,
        *,
        config: Any = None,
        toml: Optional[str] = None,
        megatron: Optional[str] = None,
        mesh: Mapping[str, int] = {},
        at: Mapping[str, int] = {},
        sequence_length: int,
        sequences: int = 1,
        microbatches: int = 1,
        dtype: torch.dtype = torch.float32,
        cuts: Mapping[str, int] = {},
        pieces: Optional[Pieces] = None,
        rename: Optional[Callable[[str], str]] = None,
        positions: Optional[List[Range]] = None,
        sequence_first: bool = False,
        local_scale: float = 1,
        loss: str = "tokens",
        sums: Optional[torch.dtype] = None,
        optimizer: Optional[Mapping[str, float]] = None,
        backward: bool = True,
        trainer: str = f"PyTorch {torch.__version__}",
    ) -> None:
        for given, what in ((mesh, "mesh"), (at, "at")):
            for axis in given:
                if axis not in AXES:
                    raise TapError(f"{what}: no axis {axis!r}; accepted: {', '.join(AXES)}")
        if dtype not in DTYPES:
            raise TapError(f"dtype: {dtype}; accepted: {', '.join(map(str, DTYPES))}")
        self.folder = os.fspath(folder)
        self.model, self.cuts, self.pieces, self.rename = model, dict(cuts), pieces, rename or (lambda name: name)
        self.mesh = {axis: int(mesh.get(axis, 1)) for axis in AXES}
        self.at = {axis: int(at.get(axis, 0)) for axis in AXES}
        self.length, self.sequences, self.sequence_first = sequence_length, sequences, sequence_first
        self.positions = positions or zigzag(sequence_length, self.at["cp"], self.mesh["cp"])
        self.local_scale, self.backward = local_scale, backward
        self.layout: Dict[str, Any] = {
            "format": "heddle-check 1", "trainer": trainer, "model": _subject(config, toml, megatron, model),
            "mesh": {axis: self.mesh[axis] for axis in STATED}, "dtype": DTYPES[dtype], "microbatches": microbatches,
            "sequences": sequences, "sequence_length": sequence_length, "loss": loss,
        }
        if sums is not None:
            self.layout["sums"] = DTYPES[sums]
        if optimizer is not None:
            self.layout["optimizer"] = dict(optimizer)
        self._rows: List[Dict[str, Any]] = []
        self._tensors: Dict[str, Tensor] = {}
        self._places: Dict[Tuple[str, str, int], str] = {}
        self._microbatch = -1
        self._hooks: List[Any] = []
        self._of: Dict[str, List[int]] = {}  # shapes of whole tensors
        self._parameters = [(p, self._pieces_of(self.rename(n), p)) for n, p in model.named_parameters() if p.requires_grad]
        self._of.update({piece.name: piece.of for _, held in self._parameters for piece in held})

    def __enter__(self) -> "Tap":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._unhook()
        if kind is None:
            self.write()

    # ---- where a tensor of this rank lies in the whole one

    def _pieces_of(self, name: str, tensor: Tensor) -> List[Piece]:
        given = self.pieces(name, tensor) if self.pieces else None
        if given is not None:
            return given
        if hasattr(tensor, "placements"):
            of, box = list(tensor.shape), _box(tensor, name)
        else:
            of, box = list(tensor.shape), [[0, dim] for dim in tensor.shape]
            axis = "etp" if ".experts." in name else "tp"
            for pattern, dim in self.cuts.items():
                if self.mesh[axis] > 1 and re.search(pattern, name):
                    first = self.at[axis] * of[dim]
                    box[dim] = [first, first + of[dim]]
                    of[dim] *= self.mesh[axis]
                    break
        return split_experts(name, of, box) or [Piece(name, of, list(box))]

    def _width(self, module: str) -> Optional[int]:
        """The width of a module's whole output."""
        module = re.sub(r"([qk])_rotated$", r"\1_proj", module)
        weight = self._of.get(f"{module}.weight")
        if module.endswith(("self_attn.core", "mlp.act")):
            reader = self._of.get(re.sub(r"core$", "o_proj", re.sub(r"act$", "down_proj", module)) + ".weight")
            return reader[1] if reader else None
        if module == "model.embed_tokens" and weight:
            return weight[1]
        if module == "lm_head" and not weight:
            weight = self._of.get("model.embed_tokens.weight")
        if weight and re.search(r"_proj$|norm$|gate$|lm_head$", module):
            return weight[0]
        norms = [of[0] for name, of in self._of.items() if re.search(r"input_layernorm\.weight$|model\.norm\.weight$", name)]
        return norms[0] if norms else None

    def _rows_of(self, name: str, tensor: Tensor) -> Optional[Tuple[List[int], List[Any], Tensor]]:
        """Shape of the whole output of a microbatch, this rank's part, and the values as [sequences, positions, width]."""
        width = self._width(name)
        if width is None:
            return None
        values, tp = _local(_summed(tensor.detach())), self.mesh["tp"]
        if values.dim() == 3 and self.sequence_first:
            values = values.transpose(0, 1)
        own = values.shape[-1]
        rows = values.numel() // own // self.sequences
        values = values.reshape(self.sequences, rows, own)
        positions = self.positions
        held = _count(positions)
        if rows * tp == held and tp > 1:
            positions = _nth_share(positions, self.at["tp"], tp)
        elif rows != held:
            raise TapError(f"{name}: {rows} positions of {held} on this rank; all, or one part in {tp} (tp), are accepted")
        if own not in (width, width // tp):
            raise TapError(f"{name}: {own} columns of {width}; all, or one part in {tp} (tp), are accepted")
        first = 0 if own == width else self.at["tp"] * own
        return [self.sequences, self.length, width], [[0, self.sequences], positions, [first, first + own]], values

    # ---- what is kept

    def _keep(self, stage: str, name: str, of: Sequence[int], at: Sequence[Any], values: Tensor, microbatch: int = -1,
              scale: float = 1, **more: Any) -> None:
        # What is recomputed in the backward pass comes a second time and takes the place of the first.
        key = self._places.setdefault((stage, name, microbatch), f"{len(self._places):06}")
        row = {"tensor": key, "stage": stage, "name": name, "of": list(of), "at": list(at), **more}
        if microbatch >= 0:
            row["microbatch"] = microbatch
        if scale != 1:
            row["scale"] = scale
        if key not in self._tensors:
            self._rows.append(row)
        if not values.is_floating_point():
            values = values.double()
        self._tensors[key] = values.detach().to("cpu", copy=True).contiguous()

    def tensor(self, stage: str, name: str, values: Tensor, scale: float = 1) -> None:
        """Keeps an output of a module that the taps do not see, or the gradient by it: stage "forward" or "backward"."""
        found = self._rows_of(name, values)
        if self._microbatch < 0 or found is None:
            raise TapError(f"{name}: a module's output within `with tap.microbatch(m)` is accepted")
        self._keep(stage, name, *found, microbatch=self._microbatch, scale=scale)

    def start(self, tokens: Tensor, loss_mask: Optional[Tensor] = None) -> None:
        """Before the step. `tokens`: [G, sequence_length + 1] of all ranks, alike on all; row ((m·dp + d)·sequences + b) is
        sequence b of microbatch m of dp rank d. `loss_mask`: [G, sequence_length], 1 where the label counts."""
        own: Dict[str, Tensor] = {}
        listed: List[Any] = []
        for parameter, pieces in self._parameters:
            for piece in pieces:
                own[f"{len(listed)}"] = piece.take(_local(parameter.detach())).to("cpu", copy=True).contiguous()
                listed.append([piece.name, piece.of, piece.at])
        os.makedirs(self._own_folder(), exist_ok=True)
        save_file(own, f"{self._own_folder()}/start.safetensors")
        _write_json(f"{self._own_folder()}/start.json", listed)
        _barrier()
        if _rank() == 0:
            whole = {"tokens": tokens.to("cpu", torch.int64).contiguous()}
            if loss_mask is not None:
                whole["loss_mask"] = loss_mask.to("cpu", torch.uint8).contiguous()
            save_file({**self._joined(), **whole}, f"{self.folder}/start.safetensors")
        _barrier()
        for name in ("start.safetensors", "start.json"):
            os.remove(f"{self._own_folder()}/{name}")
        self._hook()

    def _joined(self) -> Dict[str, Tensor]:
        whole: Dict[str, Tensor] = {}
        missing: Dict[str, Tensor] = {}
        for rank in range(_ranks()):
            folder = f"{self.folder}/rank-{rank:05}"
            tensors = load_file(f"{folder}/start.safetensors")
            with open(f"{folder}/start.json", encoding="utf-8") as file:
                listed = json.load(file)
            for key, (name, of, at) in enumerate(listed):
                values = tensors[str(key)]
                into = whole.setdefault(name, torch.zeros(of, dtype=values.dtype))
                if list(into.shape) != of:
                    raise TapError(f"{name}: rank {rank} has it as {of}, another as {list(into.shape)}")
                places = torch.meshgrid(*[_indices(ranges) for ranges in at], indexing="ij")
                into[places] = values.reshape([_count(ranges) for ranges in at])
                missing.setdefault(name, torch.ones(of, dtype=torch.bool))[places] = False
        for name, left in missing.items():
            if left.any():
                raise TapError(f"{name}: no rank holds {int(left.sum())} of its {left.numel()} elements: look at `cuts`, `at`")
        return whole

    @contextlib.contextmanager
    def microbatch(self, index: int) -> Iterator[None]:
        """Keeps outputs of modules, and gradients by them, while forward and backward of one microbatch run."""
        self._microbatch = index
        try:
            yield
        finally:
            self._microbatch = -1

    def _hook(self) -> None:
        for name, module in self.model.named_modules():
            name = self.rename(name)
            if _OUTPUTS.match(name):
                self._hooks.append(module.register_forward_hook(lambda _, __, out, n=name: self._see(n, out)))
            for pattern, texts in _INPUTS:
                if pattern.match(name):
                    tapped = [pattern.sub(text, name) for text in texts]
                    # Ahead of others, which may make a DTensor of what goes another way too.
                    self._hooks.append(module.register_forward_pre_hook(lambda _, ins, n=tapped: self._see_all(n, ins), prepend=True))

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _see_all(self, names: Sequence[str], ins: Sequence[Any]) -> None:
        for name, one in zip(names, ins):
            self._see(name, one.flatten(2) if isinstance(one, Tensor) and one.dim() == 4 else one)

    def _see(self, name: str, out: Any) -> None:
        tensor = next((t for t in out if isinstance(t, Tensor)), None) if isinstance(out, (tuple, list)) else out
        if self._microbatch < 0 or not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            return
        found = self._rows_of(name, tensor)
        if found is None:
            return
        of, at, values = found
        microbatch = self._microbatch
        self._keep("forward", name, of, at, values, microbatch)
        if self.backward and tensor.requires_grad and torch.is_grad_enabled():

            def see_gradient(gradient: Tensor) -> None:
                rows = self._rows_of(name, gradient)
                if rows is not None:
                    self._keep("backward", name, *rows, microbatch=microbatch, scale=self.local_scale)

            getattr(tensor, "register_hook")(see_gradient)  # torch gives it no types

    def _gradient(self, parameter: Tensor) -> Tensor:
        gradient = getattr(parameter, "main_grad", None)
        gradient = parameter.grad if gradient is None else gradient
        placements = getattr(parameter, "placements", None)
        if placements is not None and getattr(gradient, "placements", placements) != placements:
            gradient = getattr(gradient, "redistribute")(placements=placements)  # a sum that is still in parts, or whole
        return torch.zeros_like(_local(parameter)) if gradient is None else _local(gradient)

    def local_gradients(self, sum_over: Callable[[str], Sequence[str]]) -> None:
        """After the last microbatch, before the reduction. `sum_over(name)`: axes over which parts are still to be added."""
        for parameter, pieces in self._parameters:
            for piece in pieces:
                axes = [axis for axis in sum_over(piece.name) if self.mesh[axis] > 1 or axis == "edp"]
                self._keep("local_gradient", piece.name, piece.of, piece.at, piece.take(self._gradient(parameter)),
                           scale=self.local_scale, sum_over=axes)

    def gradients(self, scale: float = 1) -> None:
        """After all reductions, before clipping. `scale`: the gradients are so many times those of the step's loss."""
        for parameter, pieces in self._parameters:
            for piece in pieces:
                self._keep("gradient", piece.name, piece.of, piece.at, piece.take(self._gradient(parameter)), scale=scale)

    def norms(self, loss: Any = None, grad_norm: Any = None) -> None:
        """The step's mean loss and the norm of all gradients before clipping, as this rank reports them."""
        for name, value in (("loss", loss), ("grad_norm", grad_norm)):
            if value is not None:
                self._keep("norm", name, [1], [[0, 1]], torch.as_tensor(float(value), dtype=torch.float64).reshape(1))

    def weights(self) -> None:
        """After the update."""
        if "optimizer" not in self.layout:
            raise TapError("weights: Tap(…, optimizer={'lr': …}) is needed to compute them again")
        for parameter, pieces in self._parameters:
            for piece in pieces:
                self._keep("weight", piece.name, piece.of, piece.at, piece.take(_local(parameter.detach())))

    def write(self) -> None:
        """Writes the rank's files. The folder is complete when all ranks have returned."""
        self._unhook()
        os.makedirs(self._own_folder(), exist_ok=True)
        save_file(self._tensors, f"{self._own_folder()}/tensors.safetensors")
        spread = self.mesh["ep"] * self.mesh["etp"] > 1
        at = {axis: self.at[axis] for axis in AXES if axis != "edp" or spread}
        _write_json(f"{self._own_folder()}/index.json", {"rank": _rank(), "at": at, "tensors": self._rows})
        if _rank() == 0:
            _write_json(f"{self.folder}/layout.json", self.layout)
        _barrier()

    def _own_folder(self) -> str:
        return f"{self.folder}/rank-{_rank():05}"


def _nth_share(positions: List[Range], index: int, parts: int) -> List[Range]:
    """The share of a rank of sequence parallelism: as many positions, one share behind the other."""
    each = _count(positions) // parts
    indices = _indices(positions)[index * each : (index + 1) * each].tolist()
    ranges: List[Range] = []
    for i in indices:
        if ranges and ranges[-1][1] == i:
            ranges[-1][1] += 1
        else:
            ranges.append([i, i + 1])
    return ranges


def _indices(at: Any) -> Tensor:
    ranges = at if isinstance(at[0], (list, tuple)) else [at]
    return torch.cat([torch.arange(begin, end) for begin, end in ranges])


def _subject(config: Any, toml: Optional[str], megatron: Optional[str], model: nn.Module) -> Dict[str, Any]:
    if sum(given is not None for given in (config, toml, megatron)) != 1:
        raise TapError("exactly one of config, toml and megatron is accepted: the model as Heddle shall read it")
    if toml is not None:
        return {"toml": toml}
    if megatron is not None:
        return {"megatron": megatron}
    keys = json.loads(config.to_json_string(use_diff=False)) if hasattr(config, "to_json_string") else dict(config)
    if keys.get("architectures") is None:  # Transformers writes it when it saves
        keys["architectures"] = [type(model).__name__.removeprefix("FSDP")]
    return {"config": keys}


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _rank() -> int:
    return torch.distributed.get_rank() if _distributed() else 0


def _ranks() -> int:
    return torch.distributed.get_world_size() if _distributed() else 1


def _barrier() -> None:
    if _distributed():
        torch.distributed.barrier()


def _write_json(path: str, value: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
