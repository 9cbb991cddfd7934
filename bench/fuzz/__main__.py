"""Command line of the fuzzer; see the package docstring."""

from __future__ import annotations

import argparse
import sys

import bench.fuzz


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fuzz",
        description=bench.fuzz.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="number of mutated inputs")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random numbers")
    parser.add_argument("--twin", choices=["c", "py", "both"], default="c", help="which twins of the modules")
    parser.add_argument("--only", action="append", metavar="TARGET", help="these targets only")
    parser.add_argument("--input", metavar="HEX", help="decode this one input with the target of --only")
    options = parser.parse_args()
    if options.twin == "py":
        from cometmq._cython import prefer_source

        prefer_source()  # before anything that would load a compiled module
    return fuzz(options)


def fuzz(options: argparse.Namespace) -> int:
    from bench.fuzz.fuzz import Failure, Fuzzer, run
    from bench.fuzz.targets import targets

    found = targets("py" if options.twin == "py" else "c")
    other = targets("py") if options.twin == "both" else None
    if options.only:
        found = [target for target in found if target.name in options.only]
    if not found:
        raise SystemExit(f"no such target: {', '.join(options.only)}")
    try:
        if options.input is not None:
            fuzzer = Fuzzer(found, options.seed, other)
            fuzzer._decode(found[0], fuzzer._memory.place(bytes.fromhex(options.input)))
            return 0
        print(f"twin {options.twin}, seed {options.seed}")
        return run(found, options.count, options.seed, other)
    except Failure as failure:
        print(failure)
        return 1


if __name__ == "__main__":
    sys.exit(main())
