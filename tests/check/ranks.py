"""Ranks as children of one process, which imports once for all of them."""
import json
import os
import pathlib
import sys
import traceback


def in_ranks(run_rank):
    """Calls run_rank(rank, ranks, cases, store) in each child; sys.argv: CASES.json RANKS STORE."""
    cases, ranks, store = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2]), sys.argv[3]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run_rank(rank, ranks, cases, store)
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        children.append(child)
    failed = False
    while children:
        child, status = os.wait()
        children.remove(child)
        if status != 0 and not failed:  # the others would wait for it
            failed = True
            for other in children:
                os.kill(other, 9)
    sys.exit(int(failed))
