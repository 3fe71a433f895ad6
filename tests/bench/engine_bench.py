"""What the engine costs and how fast it is, beside llama.cpp and PyPI `rwkv` on the same weights.

All workers are alive at once and wait; a round has each cell measured by everyone who takes part,
one after the other, so that a busy machine is busy for all. One thread means one core that all
share in turn, two means two. Cells and goals are in engine_plan.py. Needs about 20 GiB of memory
and of disk, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import engine_growth
import engine_peers
import engine_plan
import engine_rounds
import engine_rows
import engine_workers
import results
from engine_rounds import Options

STEPS = {1: 32, 8: 16, 32: 8}
QUICK_STEPS = {1: 16, 8: 8, 32: 4}
KINDS = tuple(engine_workers.ENGINE_OPTIONS)


def main() -> None:
    """Measure, write build/bench/engine.json, print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="default 8, with --quick 3")
    parser.add_argument("--quick", action="store_true", help="one thread, few steps, no growth")
    parser.add_argument("--rows", default="", help="e.g. 'decode_b1/*/1t,floor_*'; writes no file")
    parser.add_argument("--kinds", default=",".join(KINDS), help="formats of our weights")
    args = parser.parse_args()
    options = Options(
        rounds=args.rounds or (3 if args.quick else 8),
        steps=QUICK_STEPS if args.quick else STEPS,
        kinds=tuple(args.kinds.split(",")),
        patterns=tuple(filter(None, args.rows.split(","))),
    )
    whole = not args.quick and not options.patterns and options.kinds == KINDS
    made: list[engine_rows.Row] = []
    for rows in parts(options, args.quick):
        for row in rows:
            print(engine_rows.line(row), flush=True)
        made += rows
        if whole:  # after each part: the next one may fail after ten minutes
            print(results.write("engine", made, ["make bench-engine"]))
    if not whole:
        print("bench-engine: part of the rows only, build/bench/engine.json stays as it was")


def parts(options: Options, quick: bool) -> Iterator[list[engine_rows.Row]]:
    """All rows that are asked for, part by part as they are measured."""
    peers = engine_peers.prepare()
    for threads in (1,) if quick else engine_plan.THREADS:
        yield engine_rounds.measure(options, peers, threads)
    for names, measure in (
        (engine_plan.GROWTH_ROWS, engine_growth.growth),
        (engine_plan.SERVER_ROWS, engine_growth.server),
    ):
        asked = engine_plan.any_wanted(names, options.patterns)
        if asked and (options.patterns or not quick):
            yield measure(peers)


if __name__ == "__main__":
    main()
