"""Runs of `heddle train` on disk: metrics, figures, checkpoints."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Union

from . import _call, _core
from ._errors import InputError
from ._frames import Library, frame

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ._tokens import Tokenizer

PathLike = Union[str, "os.PathLike[str]"]
_not_finite = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_longest_line_bytes = 16 << 20


def step_of(line: Union[bytes, str]) -> dict[str, Any]:
    """A line of a run's metrics: figures by key; "extra" figures stand among the others. InputError for no step."""
    try:
        read = json.loads(line)
    except ValueError:
        read = None
    if not isinstance(read, dict) or not isinstance(read.get("step"), int):
        raise InputError("not a line of a step: an object with the whole number 'step' is expected")
    extra = read.pop("extra", {})
    figures = {**read, **(extra if isinstance(extra, dict) else {})}
    return {key: _not_finite.get(each, each) if isinstance(each, str) else each for key, each in figures.items()}


class Metrics:
    """Figures of a run's steps as columns. metrics["lm_loss"] has a number a step, NaN where there is none."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.steps = steps

    @property
    def names(self) -> list[str]:
        """Keys of the figures that are numbers, in the order in which they first come."""
        return list(
            dict.fromkeys(key for step in self.steps for key, each in step.items() if isinstance(each, (int, float)))
        )

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """A figure of all steps: float64, shape (steps,). KeyError where no step has it."""
        import numpy as np

        if name not in self.names:
            raise KeyError(name)
        found = [step.get(name) for step in self.steps]
        return np.array([each if isinstance(each, (int, float)) else math.nan for each in found], dtype=np.float64)

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """All figures that are numbers."""
        return {name: self[name] for name in self.names}

    def to_frame(self, library: Optional[Library] = None) -> Any:
        """A row a step."""
        return frame(dict(self.columns()), library)


class Checkpoint(Mapping[str, "NDArray[Any]"]):
    """Tensors of a checkpoint as arrays, read when they are asked for.

    The checkpoint is compared with its checksums as it is opened. Tensors are whole, whatever the layout of the ranks
    was. bf16 comes as float32, which is exact. Weights have their names; moments are "m.NAME" and "v.NAME".
    """

    def __init__(self, path: PathLike) -> None:
        self._held = _core.Checkpoint(os.fspath(path))
        self._tensors = {name: (kind, shape, size) for name, kind, shape, size in self._held.tensors()}
        self.path: str = self._held.path
        self.step: int = self._held.step

    def __getitem__(self, name: str) -> NDArray[Any]:
        kind, shape, size = self._tensors[name]
        return array_of(self._held.read(name, size), kind).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return tuple(self._tensors[name][1])

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r}, step={self.step}, tensors={len(self)})"


class Run:
    """A run's folder, while it trains or afterwards."""

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.toml").is_file():
            raise InputError(f"{self.folder}: no run: it has no config.toml")

    @property
    def metrics(self) -> Metrics:
        """The figures of all steps. A line that is being written is left out; of a repeated step the last holds."""
        by_step: dict[int, dict[str, Any]] = {}
        path = self.folder / "metrics.jsonl"
        if path.is_file():
            with open(path, "rb") as file:
                number = 0
                while line := file.readline(_longest_line_bytes):
                    number += 1
                    if not line.endswith(b"\n"):
                        break
                    try:
                        step = step_of(line)
                    except InputError as error:
                        raise InputError(f"{path}:{number}: {error}") from None
                    by_step[step["step"]] = step
        return Metrics([by_step[step] for step in sorted(by_step)])

    @property
    def figures(self) -> dict[str, Any]:
        """The figures of the run as a whole, as `heddle report --json` tells them."""
        figures: dict[str, Any] = _call.answer(["report"], os.fspath(self.folder))["runs"][0]
        return figures

    @property
    def config(self) -> str:
        """The whole configuration: the text of config.toml."""
        return (self.folder / "config.toml").read_text(encoding="utf-8")

    @property
    def checkpoints(self) -> list[str]:
        """The folders of its checkpoints, the oldest first."""
        return [os.fspath(path) for path in sorted((self.folder / "checkpoints").glob("step-*")) if path.is_dir()]

    def checkpoint(self, path: Optional[PathLike] = None) -> Checkpoint:
        """One of its checkpoints, opened; without a path the newest whole one."""
        return Checkpoint(self.folder / "checkpoints" if path is None else path)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that it was trained with."""
        from ._tokens import Tokenizer

        return Tokenizer(self.folder)

    def __repr__(self) -> str:
        return f"Run({os.fspath(self.folder)!r})"


_types = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1", "F8_E4M3": "u1",
}  # fmt: skip


def array_of(raw: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Bytes of a safetensors type as numbers. bf16 is widened to float32; e4m3 stays as its bytes."""
    import numpy as np

    numbers: NDArray[Any] = raw.view(_types[kind])
    if kind == "BF16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers


def tensors(path: PathLike) -> dict[str, NDArray[Any]]:
    """Tensors of a safetensors file, or of a folder of them, by name.

    The files are mapped: numbers are read when they are used, and cannot be written. bf16 comes as float32, a copy.
    InputError for a file whose header, sizes or ranges are wrong, or a name that two files have.
    """
    import numpy as np

    maps: dict[str, NDArray[np.uint8]] = {}
    found: dict[str, NDArray[Any]] = {}
    for name, kind, shape, file, offset, size in _core.tensors_in(os.fspath(path)):
        if name in found:
            raise InputError(f"{file}: {name} is in another file of the folder, too")
        if file not in maps:
            maps[file] = np.memmap(file, dtype=np.uint8, mode="r")
        found[name] = array_of(maps[file][offset : offset + size], kind).reshape(shape)
    return found
