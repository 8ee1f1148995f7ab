"""JSON into typed objects."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Mapping, TypeVar

from ._errors import BugError

T = TypeVar("T")
_hints: dict[type, dict[str, Any]] = {}


class Answer:
    """Base of all results: attributes by the JSON's names, and the JSON as it is in `data`."""

    data: dict[str, Any]


def read(kind: type[T], data: Mapping[str, Any]) -> T:
    """An object of a dataclass of this module's kind. BugError where the JSON lacks a field without a default."""
    hints = _hints.get(kind)
    if hints is None:
        hints = _hints[kind] = typing.get_type_hints(kind)
    given = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name == "data":
            given["data"] = dict(data)
        elif field.name in data:
            given[field.name] = value(hints[field.name], data[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise BugError(f"this is a bug of Heddle: {kind.__name__}.{field.name} is not in the answer")
    return kind(**given)


def value(hint: Any, found: Any) -> Any:
    """A value as its annotation says: lists and dicts of dataclasses, or as it is."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        return None if found is None else value(next(part for part in parts if part is not type(None)), found)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read(hint, found)
    if origin is list:
        return [value(parts[0], each) for each in found]
    if origin is dict:
        return {key: value(parts[1], each) for key, each in found.items()}
    return float(found) if hint is float and isinstance(found, int) else found
