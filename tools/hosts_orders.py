"""What tools/hosts is told to do to its links while a program runs (--orders): lines that come through a named pipe.

    cut HOST, mend HOST     nothing goes through its link, and all again
    deaf HOST, mute HOST    nothing reaches it; nothing leaves it
    apart HOST HOST         nothing goes between the two
    flip HOST               a bit in the next large frame that leaves it, unseen by any checksum
    rate HOST RATE          of its link, each way

All but the first two and the last need --latency, whose switch is a program of our own.
"""
import contextlib
import os

ANY = 255               # host, to hosts_wire
BUCKET_BYTES = 2 * 65_536   # a frame passes a bucket whole


class Orders:
    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) if path else None
        self.held = b""

    def take(self):
        """The lines that have come since."""
        if self.file is None:
            return []
        with contextlib.suppress(BlockingIOError):
            self.held += os.read(self.file, 4096)
        *lines, self.held = self.held.split(b"\n")
        return [line.decode(errors="replace") for line in lines if line.strip()]


def obey(hosts, line, rate_of):
    """Does it before it returns. ValueError, IndexError: not of that form."""
    what, *words = line.split()
    if what == "rate":
        hosts.hold_rate(int(words[0]), rate_of(words[1]), BUCKET_BYTES)
        return
    numbers = [int(word) for word in words]
    if any(not 0 <= number < len(hosts.pids) for number in numbers):
        raise ValueError("there is no such host")
    if what in ("cut", "mend"):
        hosts.set_link(numbers[0], what == "mend")
    elif what == "deaf":
        hosts.tell_wire("c", ANY, numbers[0])
    elif what == "mute":
        hosts.tell_wire("c", numbers[0], ANY)
    elif what == "apart":
        hosts.tell_wire("c", numbers[0], numbers[1])
        hosts.tell_wire("c", numbers[1], numbers[0])
    elif what == "flip":
        hosts.tell_wire("f", numbers[0], ANY)
    else:
        raise ValueError(f"no order '{what}'")
