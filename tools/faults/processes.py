"""Faults of processes: killed, stopped, slowed, and told to end as a batch system tells them."""
import signal
import threading
import time

from emulated import EVERY, STEPS


def ranks(job, draw):
    return [pid for pid, one in job.processes().items() if one[2] == draw["rank"]]


def kill_rank(job, draw):
    return job.strike(ranks(job, draw)) > 0


def kill_launcher(job, _):
    return job.strike(job.of_role("launcher")[:1]) > 0


def kill_daemon(job, draw):
    found = job.of_role("daemon")
    return bool(found) and job.strike([found[draw["rank"] % len(found)]]) > 0


def kill_agent(job, draw):
    """And a rank a moment later: what the agent held has to be found without it."""
    found = job.of_role("agent")
    if not found or not job.strike([found[draw["rank"] % len(found)]]):
        return False
    if draw["part"] < 0.7:
        time.sleep(draw["moment"])
        kill_rank(job, draw)
    return True


def kill_supervisor(job, _):
    job.strike([job.supervisor.pid])
    job.supervisor.wait()
    job.start()
    return True


def second_fault(job, draw):
    """A rank, and then what recovers from that."""
    if not kill_rank(job, draw):
        return False
    before = job.starts()
    job.wait_until(lambda: job.starts() > before)
    time.sleep(draw["moment"] * 10)    # ranks of the next generation are on their way, or there
    if draw["part"] < 0.2:
        return kill_supervisor(job, draw)
    if draw["part"] < 0.4:
        job.lose_host(job.hosts[draw["rank"]])
        return True
    roles = ("launcher", "daemon", "rank") if draw["part"] < 0.7 else ("rank", "daemon", "launcher")
    for pids in map(job.of_role, roles):
        if pids:
            job.strike(pids[:1])
            break
    return True


# ---- stopped and slowed

def stop_rank(job, draw):
    return job.strike(ranks(job, draw), signal.SIGSTOP) > 0


def stop_launcher(job, _):
    return job.strike(job.of_role("launcher")[:1], signal.SIGSTOP) > 0


def stop_host(job, draw):
    host = job.hosts[draw["rank"]]
    return job.strike([p for p, one in job.processes().items() if one[1] == host], signal.SIGSTOP) > 0


def stop_rank_for_a_while(job, draw):
    """For 1 to 14 s: less than the others wait, or more."""
    struck = ranks(job, draw)
    if not job.strike(struck, signal.SIGSTOP):
        return False
    later = threading.Timer(1 + 13 * draw["part"], job.strike, (struck, signal.SIGCONT))
    later.daemon = True
    later.start()
    return True


def slow_rank(job, draw):
    """It has a fifth of its time for 3 s."""
    struck = ranks(job, draw)
    for _ in range(30):
        if not job.strike(struck, signal.SIGSTOP):
            return False
        time.sleep(0.08)
        job.strike(struck, signal.SIGCONT)
        time.sleep(0.02)
    return True


# ---- as a batch system does it; the job is started again afterwards, with --resume

def preempt(job, _):
    """SIGTERM to the supervisor: what sbatch --signal=B:TERM and a preemption send first."""
    return job.strike([job.supervisor.pid], signal.SIGTERM) > 0


def cancel(job, draw):
    """SIGTERM to all that is the job's, and SIGKILL after KillWait, here at most a second."""
    job.strike(list(job.processes()), signal.SIGTERM)
    until = time.monotonic() + draw["part"]
    while time.monotonic() < until and job.supervisor.poll() is None:
        time.sleep(0.02)
    return node_failure(job, draw)


def node_failure(job, _):
    """The node on which the batch script runs is gone, and with it the whole job."""
    while pids := list(job.processes()):
        job.strike(pids)
    job.supervisor.wait()
    return True


def signal_rank(job, draw):
    """SIGUSR2 or SIGTERM to one rank."""
    return job.strike(ranks(job, draw), signal.SIGUSR2 if draw["part"] < 0.5 else signal.SIGTERM) > 0


# ---- hosts

def lose_host(job, draw):
    job.lose_host(job.hosts[draw["rank"]])
    return True


def lose_host_and_mend(job, draw):
    lose_host(job, draw)
    before = job.starts()
    job.wait_until(lambda: job.starts() > before and job.steps_done() < STEPS - EVERY)
    time.sleep(draw["moment"])
    job.mend_host(job.hosts[draw["rank"]])
    return True


def lose_two_hosts(job, draw):
    """With agents: a host, and the one that keeps a copy of its memory."""
    for place in (draw["rank"], draw["rank"] + 1):
        job.lose_host(job.hosts[place % len(job.hosts)])
    return True
