"""Faults of values: bits flipped, or a NaN put, in the memory of a rank that trains, wherever its numbers lie just then:
weights, moments, sums, what is between two ops."""
import contextlib
import random
import signal

from faults.processes import ranks

PAGE, LEAST, STACK = 4096, 1 << 18, 8 << 20
STRIKES = 48     # words of a rank: most lie where nobody reads them again
ZEROS = bytes(PAGE)
NAN = bytes.fromhex("0000c07f")    # in fp32, and of two bf16 the second


def regions(pid):
    """Where what a program takes for its numbers lies: private memory of no file, large, and no thread's stack."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            first, last = (int(word, 16) for word in words[0].split("-"))
            if words[1] == "rw-p" and len(words) == 5 and last - first >= LEAST and last - first != STACK:
                yield first, last


def pages_in_use(pid, memory):
    pages = []
    for first, last in regions(pid):
        with contextlib.suppress(OSError):
            memory.seek(first)
            held = memory.read(last - first)
            pages += [first + at for at in range(0, len(held), PAGE) if held[at:at + PAGE] != ZEROS]
    return pages


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
