"""Heddle: plan, check and train language models.

plan, search, search_from, predict, simulate, inspect, schedule and train equal the commands of that name with --json.
Their results have typed attributes, `data` (the JSON) and to_frame(). Run, tensors, tokenizer and dataset read files.

Every function that takes long releases the GIL, shows progress where `progress` is True or a callable of tqdm's
protocol, and ends early on KeyboardInterrupt. One command runs at a time in a process; another waits for it.
"""

from ._commands import (
    inspect,
    plan,
    predict,
    schedule,
    schedule_names,
    search,
    search_from,
    simulate,
    train,
)
from ._core import version as _version
from ._errors import BugError, Error, HeddleWarning, InputError, OutOfMemoryError
from ._plan import PlanAnswer
from ._results import (
    Inspection,
    Job,
    MemoryOverStep,
    ModelFacts,
    Plan,
    Prediction,
    RunSummary,
    Schedule,
    ScriptAnswer,
    SearchResult,
    Simulation,
)
from ._runs import Checkpoint, Metrics, Run, tensors
from ._tokens import TokenFile, Tokenizer, dataset, tokenizer

__version__ = _version()

__all__ = [
    "BugError",
    "Checkpoint",
    "Error",
    "HeddleWarning",
    "InputError",
    "Inspection",
    "Job",
    "MemoryOverStep",
    "Metrics",
    "ModelFacts",
    "OutOfMemoryError",
    "Plan",
    "PlanAnswer",
    "Prediction",
    "Run",
    "RunSummary",
    "Schedule",
    "ScriptAnswer",
    "SearchResult",
    "Simulation",
    "TokenFile",
    "Tokenizer",
    "dataset",
    "inspect",
    "plan",
    "predict",
    "schedule",
    "schedule_names",
    "search",
    "search_from",
    "simulate",
    "tensors",
    "tokenizer",
    "train",
]
