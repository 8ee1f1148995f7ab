"""Faults of values: bits flipped, or a NaN put, in the memory of a rank that trains, wherever its numbers lie just then:
weights, moments, sums, what is between two ops."""
import contextlib

from faults.processes import ranks

PAGE, LEAST, STACK = 4096, 1 << 18, 8 << 20
NAN = bytes.fromhex("0000c07f")    # in fp32, and of two bf16 the second


def regions(pid):
    """Where what a program takes for its numbers lies: private memory of no file, large, and no thread's stack."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            first, last = (int(word, 16) for word in words[0].split("-"))
            if words[1] == "rw-p" and len(words) == 5 and last - first >= LEAST and last - first != STACK:
                yield first, last


def strike(how):
    def one(job, draw):
        struck = False
        for pid in ranks(job, draw):
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                pages = []
                for first, last in regions(pid):
                    memory.seek(first)
                    held = memory.read(last - first) or b""
                    pages += [first + at for at in range(0, len(held), PAGE) if any(held[at:at + PAGE])]
                if not pages:
                    continue
                page = pages[int(draw["part"] * len(pages))]
                memory.seek(page)
                words = memory.read(PAGE)
                places = [at for at in range(0, PAGE, 4) if any(words[at:at + 4])]
                at = places[int(draw["moment"] * 10 * len(places)) % len(places)]
                word = bytearray(words[at:at + 4])
                if how == "NaN":
                    word = bytearray(NAN)
                else:
                    bit = draw["call"] % 32
                    word[bit // 8] ^= 1 << (bit % 8)
                memory.seek(page + at)
                memory.write(bytes(word))
                struck = True
        return struck
    return one
