"""Faults of values: bits flipped, or a NaN put, in the memory of a rank that trains, wherever its numbers lie just then:
weights, moments, sums, what is between two ops."""
import contextlib
import random
import signal

from faults.processes import ranks

PAGE, LEAST_SET_ASIDE = 4096, 1 << 30
STRIKES = 8    # words of a rank: some lie where nobody reads them again
ZEROS = bytes(PAGE)
NAN = bytes.fromhex("0000c07f")    # in fp32, and of two bf16 the second


def arena(pid):
    """Where the values of a program lie: open memory of no file before the rest of what was set aside for them."""
    before = None
    with open(f"/proc/{pid}/maps", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            first, last = (int(word, 16) for word in words[0].split("-"))
            if before and words[1] == "---p" and first == before[1] and last - first >= LEAST_SET_ASIDE:
                return before
            before = (first, last) if words[1] == "rw-p" and len(words) == 5 else None
    return None


def pages_in_use(pid, memory):
    place = arena(pid)
    if place is None:
        return []
    memory.seek(place[0])
    held = memory.read(place[1] - place[0])
    return [place[0] + at for at in range(0, len(held), PAGE) if held[at:at + PAGE] != ZEROS]


def strike(how):
    def one(job, draw):
        struck, drawn = False, random.Random(f"{draw['part']}:{draw['call']}")
        for pid in ranks(job, draw):
            job.strike([pid], signal.SIGSTOP)    # else it may be done before its memory has been looked through
            with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                pages = pages_in_use(pid, memory)
                for _ in range(STRIKES if pages else 0):
                    page = drawn.choice(pages)
                    memory.seek(page)
                    words = memory.read(PAGE)
                    places = [at for at in range(0, len(words) - 3, 4) if any(words[at:at + 4])]
                    if not places:
                        continue
                    at = drawn.choice(places)
                    word = bytearray(NAN if how == "NaN" else words[at:at + 4])
                    if how == "flip":
                        bit = drawn.randrange(32)
                        word[bit // 8] ^= 1 << (bit % 8)
                    memory.seek(page + at)
                    memory.write(bytes(word))
                    struck = True
            job.strike([pid], signal.SIGCONT)
        return struck
    return one
