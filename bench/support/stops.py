"""A Python bench that is stopped before its end, by SIGINT, SIGTERM or --limit, says so and prints what it has measured
until then; bench/support/stops.h does the same for the others.

    parser.add_argument("--limit", **stops.LIMIT)
    with stops.watched("./dev bench torch", arguments.limit) as stop:
        ...                                  # measures
    report()                                 # in either case
    sys.exit(stop.status or status)
"""
import contextlib
import signal
import sys
import time

LIMIT = dict(type=float, metavar="SECONDS", help="end after so long, and print what was measured until then")


class Stopped(BaseException):
    """No Exception: what tells of a side that failed must not take it for one."""


class Stop:
    """`status`: 0, or where the bench was stopped what it exits with: 128 and the signal's number, 124 at the limit."""
    status = 0


@contextlib.contextmanager
def watched(program, limit=None):
    begun, stop = time.monotonic(), Stop()

    def on_signal(number, _):
        if stop.status:    # once: what is measured is on its way out
            return
        stop.status = 124 if number == signal.SIGALRM else 128 + number
        raise Stopped

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    if limit:
        signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield stop
    except Stopped:
        why = "at --limit," if stop.status == 124 else f"by {signal.Signals(stop.status - 128).name}"
        print(f"\n{program}: stopped {why} after {time.monotonic() - begun:.0f} s, before its end; what it has measured "
              "until then:", file=sys.stderr, flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
