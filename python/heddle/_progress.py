"""Progress by tqdm's protocol: a callable that makes a bar with update(n), set_description(text) and close()."""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

from ._errors import Error

Progress = Union[bool, None, Callable[..., Any]]


def maker(progress: Progress) -> Optional[Callable[..., Any]]:
    """The function that makes a bar: tqdm's for True, none for False and None, otherwise what was given."""
    if progress is True:
        try:
            from tqdm.auto import tqdm
        except ModuleNotFoundError:
            raise Error("progress=True needs tqdm: pip install tqdm") from None
        made: Callable[..., Any] = tqdm
        return made
    return progress or None


class ShareBar:
    """A bar of 100 parts that follows shares from 0 to 1. It is made when the first work is told of."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._bar: Any = None
        self._what = ""
        self._done = 0.0

    def tell(self, what: str, share: float) -> None:
        if self._bar is None:
            self._bar = self._make(total=100, desc=what, unit="%")
            self._what = what
        if what != self._what:
            self._what = what
            self._bar.set_description(what)
        done = 100 * min(max(share, 0.0), 1.0)
        if done > self._done:
            self._bar.update(done - self._done)
            self._done = done

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
