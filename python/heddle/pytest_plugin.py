"""pytest's fixtures and checks for launch scripts: does a script's job still fit, and is it slower than before?

    def test_my_job(heddle_plan):
        heddle_plan.fits("train_qwen3.sh", cluster="H100")
        heddle_plan.not_slower("train_qwen3.sh", beside="main/train_qwen3.sh", slower=2, cluster="H100")

The plugin is installed with heddle. `--heddle-cluster` and `--heddle-devices` give defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import pytest

from ._verdicts import misfit, slowdown

if TYPE_CHECKING:
    from ._plan import PlanAnswer
    from ._runs import PathLike


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("heddle", "launch scripts of training jobs")
    group.addoption("--heddle-cluster", help="Accelerator or cluster file where a test names none, such as H100")
    group.addoption("--heddle-devices", type=int, help="Accelerators where a test and its script name no number")


class JobPlanner:
    """Plans jobs and fails the test for one that does not fit or is slower."""

    def __init__(self, cluster: Optional[str], devices: Optional[int]) -> None:
        self._cluster, self._devices = cluster, devices

    def __call__(self, model: PathLike, **how: Any) -> PlanAnswer:
        """heddle.plan(model, …), with the defaults of the command line."""
        import heddle

        how.setdefault("cluster", self._cluster)
        how.setdefault("devices", self._devices)
        return heddle.plan(model, **how)

    def fits(self, model: PathLike, **how: Any) -> PlanAnswer:
        """The plan of a job. The test fails where the job does not fit."""
        answer = self(model, **how)
        if not answer.fits:
            pytest.fail(misfit(answer), pytrace=False)
        return answer

    def not_slower(self, model: PathLike, beside: PathLike, slower: float = 2, **how: Any) -> PlanAnswer:
        """The plan of a job that fits. The test fails where it is more than `slower` per cent slower than `beside`."""
        answer = self.fits(model, beside=beside, **how)
        if (text := slowdown(answer, slower)) is not None:
            pytest.fail(text, pytrace=False)
        return answer


@pytest.fixture
def heddle_plan(request: pytest.FixtureRequest) -> JobPlanner:
    """Plans jobs: heddle_plan(script), heddle_plan.fits(script), heddle_plan.not_slower(script, beside=old)."""
    config = request.config
    return JobPlanner(config.getoption("--heddle-cluster"), config.getoption("--heddle-devices"))
