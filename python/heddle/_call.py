"""Commands of the program, run in this process, and their answers."""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import warnings
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, Optional, Union

from . import _core
from ._errors import Error, HeddleWarning
from ._progress import Progress, ShareBar, maker

Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]

_log = logging.getLogger("heddle")
_escapes = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_warning = re.compile(r"^(?:heddle: )?warning: ")


def words(**flags: Any) -> list[str]:
    """Flags of a command line: a_b=1 becomes --a-b=1. None and False are left out; a list repeats its flag."""
    found: list[str] = []
    for name, value in flags.items():
        flag = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            found.append(flag)
        elif isinstance(value, (list, tuple)):
            found += [f"{flag}={text(each)}" for each in value]
        else:
            found.append(f"{flag}={text(value)}")
    return found


def text(value: Any) -> str:
    """A value as the command line and --set take it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def settings(given: Optional[Mapping[str, Any]]) -> list[str]:
    """--set for each key of a configuration."""
    return [f"--set={key}={text(value)}" for key, value in (given or {}).items()]


@contextmanager
def config_file(config: Config) -> Iterator[str]:
    """The path of a configuration. A mapping of sections is written to a file for as long as the call lasts."""
    if not isinstance(config, Mapping):
        yield os.fspath(config)
        return
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
        path = os.path.join(folder, "config.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(toml(config))
        yield path


def toml(config: Mapping[str, Any], place: str = "") -> str:
    """TOML of a mapping of strings, numbers, lists of them, and further mappings."""
    # A string and a list of JSON are ones of TOML too; numbers that are not finite are words there.
    plain = [
        f"{json.dumps(key)} = {json.dumps(value)}\n"
        for key, value in config.items()
        if not isinstance(value, Mapping)
    ]
    parts = [
        (f"{place}.{json.dumps(key)}".lstrip("."), value)
        for key, value in config.items()
        if isinstance(value, Mapping)
    ]
    return "".join(plain) + "".join(f"\n[{name}]\n{toml(value, name)}" for name, value in parts)


def answer(
    arguments: list[str],
    *words: str,
    progress: Progress = None,
    step: Optional[Callable[[bytes], Optional[bool]]] = None,
    gently: bool = False,
) -> Any:
    """The answer of a command with its flags, read from its JSON; `words` stand by themselves. Error where it has none."""
    make = maker(progress)
    bar = ShareBar(make) if make and step is None else None
    try:
        status, told = _core.run(
            [*arguments, "--json", "--", *words],
            line=_tell,
            progress=bar.tell if bar else None,
            step=step,
            gently=gently,
        )
    finally:
        if bar:
            bar.close()
    if not told.strip():
        raise Error(f"{arguments[0]} ended with status {status} and no answer")
    return json.loads(told)


def _tell(line: bytes) -> None:
    for each in _escapes.sub("", line.decode("utf-8", "replace")).replace("\r", "\n").splitlines():
        if _warning.match(each):
            warnings.warn(_warning.sub("", each), HeddleWarning, stacklevel=4)
        elif each.strip():
            _log.info(each)
