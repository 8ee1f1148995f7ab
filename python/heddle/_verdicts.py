"""What is wrong with a planned job, in one line."""

from __future__ import annotations

from typing import Optional

from ._plan import PlanAnswer


def misfit(answer: PlanAnswer) -> str:
    """One line that says why a job does not fit."""
    if not answer.found:
        nearest = (answer.nothing_fits or {}).get("nearest", "")
        return f"{answer.subject}: no plan fits {answer.devices} {answer.device}" + (
            f": {nearest}" if nearest else ""
        )
    return (
        f"{answer.subject}: does not fit {answer.devices} {answer.device}: "
        f"{answer.peak_bytes / 2**30:.1f} GiB of {answer.memory_bytes / 2**30:.1f} GiB a device"
    )


def slowdown(answer: PlanAnswer, slower: float) -> Optional[str]:
    """One line where the job is more than so many per cent slower than the one beside it, otherwise None."""
    beside = answer.beside
    if beside is None or answer.tokens_per_s is None or beside.speed_ratio is None or beside.tokens_per_s is None:
        return None
    if beside.speed_ratio >= 1 - slower / 100:
        return None
    return (
        f"{answer.subject}: {100 * (1 - beside.speed_ratio):.1f} % slower than {beside.subject}: "
        f"{answer.tokens_per_s.value:,.0f} tokens/s in place of {beside.tokens_per_s:,.0f}; accepted: {slower:g} %"
    )
