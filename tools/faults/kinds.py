"""The faults that the campaign draws from, each a row: what happens, what must notice it, what job it takes. Weights are the
numbers of runs that a whole campaign of 1,300 wants of them."""
import dataclasses
import random
from collections.abc import Callable

from emulated import STEPS

from faults import disk, network, processes, surroundings, values


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    weight: int
    strike: Callable | None = None    # None: the job's own calls strike it, as `shim` says
    shim: str = ""                    # of tests/cli/fail_calls.c
    found_as: str = "process"         # whose deadline: process, host, hang; "": nobody has to notice
    agents: bool = False              # copies in memory, an agent on each host
    memory: bool = False              # copies in memory, no agent
    network: bool = False             # hosts with a network of their own
    damages: bool = False             # the newest checkpoint may be lost
    started_again: bool = False       # the job ends by it, and is started again
    changes_values: bool = False      # the weights may be others: then the audit has to name the first such step
    lasts: bool = False               # nothing of it may end the job
    settings: tuple = ()
    output: str = ""                  # where the job's output goes: full, pipe; "": a file
    clocks: bool = False              # of its hosts, an hour apart
    before: Callable | None = None    # what is done to the machine before the job starts
    after: Callable | None = None     # and when it has ended, before it is started again: what is found wrong
    may_run: Callable | None = None   # whether this machine lends what it takes


VALUES = ("train.compare_copies_every=4",)
KINDS = {kind.name: kind for kind in (
    Kind("kill rank", 300, processes.kill_rank),
    Kind("kill at a named point", 200, shim="point kill"),
    Kind("kill launcher", 25, processes.kill_launcher),
    Kind("kill daemon", 25, processes.kill_daemon),
    Kind("kill supervisor", 25, processes.kill_supervisor, found_as=""),
    Kind("kill agent", 25, processes.kill_agent, found_as="", agents=True),
    Kind("lose host", 20, processes.lose_host, found_as="host"),
    Kind("lose host, mend", 20, processes.lose_host_and_mend, found_as="host"),
    Kind("lose host with its memory", 20, processes.lose_host, found_as="host", agents=True),
    Kind("lose host and its partner", 30, processes.lose_two_hosts, found_as="host", agents=True),
    Kind("stop rank", 20, processes.stop_rank, found_as="hang"),
    Kind("stop host", 20, processes.stop_host, found_as="hang"),
    Kind("stop launcher", 10, processes.stop_launcher, found_as=""),
    Kind("stop rank for a while", 20, processes.stop_rank_for_a_while, found_as=""),
    Kind("cut link", 10, network.cut, found_as="host", network=True),
    Kind("cut link, mend", 10, network.cut_and_mend, found_as="host", network=True),
    Kind("cut link one way", 15, network.one_way, found_as="host", network=True),
    Kind("partition", 10, network.partition, found_as="host", network=True),
    Kind("two hosts apart", 5, network.apart, found_as="host", network=True),
    Kind("flapping link", 10, network.flap, found_as="", network=True),
    Kind("no space at a call", 30, shim="ENOSPC"),
    Kind("broken disk at a call", 30, shim="EIO"),
    Kind("broken disk at fsync", 30, shim="fsync EIO"),
    Kind("short write", 30, shim="short"),
    Kind("slow disk", 30, shim="slow"),
    Kind("flip a checkpoint", 20, disk.damage_checkpoint("flip"), damages=True),
    Kind("cut a checkpoint", 20, disk.damage_checkpoint("cut"), damages=True),
    Kind("flip memory", 20, disk.damage_memory("flip"), memory=True),
    Kind("cut memory", 10, disk.damage_memory("cut"), memory=True),
    Kind("no room in memory", 10, shim="point ENOSPC", memory=True),
    Kind("slow rank", 40, processes.slow_rank, found_as=""),
    Kind("slow link", 20, network.slow, found_as="", network=True),
    Kind("slow data", 20, shim="data slow", found_as=""),
    Kind("flip a value", 50, values.strike("flip"), found_as="", changes_values=True, settings=VALUES),
    Kind("NaN in a value", 40, values.strike("NaN"), found_as="", changes_values=True, settings=VALUES),
    Kind("flip in a frame", 10, network.flip_frame, found_as="", network=True, changes_values=True, settings=VALUES),
    Kind("preempted", 10, processes.preempt, found_as="", started_again=True),
    Kind("cancelled", 10, processes.cancel, found_as="", started_again=True),
    Kind("node failure", 10, processes.node_failure, found_as="", started_again=True),
    Kind("signal to a rank", 10, processes.signal_rank, found_as="", started_again=True),
    Kind("second fault", 60, processes.second_fault),
    Kind("rename folder", 30, surroundings.rename_folder, found_as="", started_again=True, after=surroundings.put_back),
    Kind("full output", 15, surroundings.full_output, output="full", lasts=True),
    Kind("output without a reader", 15, surroundings.full_output, output="pipe", lasts=True),
    Kind("freeze thread behind a save", 20, surroundings.freeze_thread, found_as="thread", may_run=surroundings.may_trace),
    Kind("long fsync", 10, shim="fsync once", lasts=True),
    Kind("passing error at start", 40, shim="data EIO", lasts=True),
    Kind("strangers at the port", 40, surroundings.strangers, found_as="", agents=True),
    Kind("clocks apart", 40, surroundings.stop_or_kill_rank, found_as="hang", clocks=True),
    Kind("stop agent", 40, surroundings.stop_agent, found_as="", agents=True),
    Kind("full memory", 40, surroundings.fill_memory, found_as="", agents=True, before=surroundings.limit_memory,
         after=surroundings.free_memory, may_run=surroundings.may_mount),
)}
KEYS = ("number", "seed", "kind", "step", "rank", "moment", "call", "part", "point", "standby")


def drawn(number, seed, only, kinds):
    """All that a run takes, from its number and the seed."""
    draw = random.Random(f"{seed}:{number}")
    names = only or [name for name in kinds]
    name = draw.choices(names, [KINDS[k].weight for k in names])[0]
    points = disk.ALL_POINTS
    if KINDS[name].shim == "point ENOSPC":
        points = [point for point in disk.POINTS_OF_MEMORY if point.split()[0] in ("fallocate", "write", "rename")]
    return {"number": number, "seed": seed, "kind": name, "step": draw.randint(1, STEPS - 6), "rank": draw.randrange(4),
            "moment": round(draw.random() * 0.1, 4), "call": draw.randint(1, 400), "part": round(draw.random(), 6),
            "point": draw.choice(points), "standby": draw.random() < 0.5}
