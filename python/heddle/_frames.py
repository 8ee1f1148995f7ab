"""Columns as a data frame of pandas or polars, whichever is there."""

from __future__ import annotations

import importlib
from typing import Any, Literal, Mapping, Optional, Sequence

from ._errors import Error

Library = Literal["pandas", "polars"]


def frame(columns: Mapping[str, Any], library: Optional[Library] = None) -> Any:
    """A DataFrame of these columns, of equal lengths.

    library: the one to take; None takes pandas, or polars where there is no pandas. Error where there is neither.
    """
    for name in (library,) if library else ("pandas", "polars"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        return module.DataFrame(dict(columns))
    raise Error(f"to_frame needs {library or 'pandas or polars'}: pip install {library or 'pandas'}")


def rows_as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns, in the order in which keys first come; None where a row lacks the key."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return {key: [row.get(key) for row in rows] for key in keys}
