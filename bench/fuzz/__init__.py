"""Mutated frames and records through every decoder: nothing may crash, hang, read out of bounds or grow.

    python -m bench.fuzz --count 10_000_000 --seed 1              the compiled twins
    python -m bench.fuzz --count 1_000_000 --seed 1 --twin py     the sources
    python -m bench.fuzz --count 1_000_000 --seed 1 --twin both   both, results compared
    python -m bench.fuzz --only records --input DAA3...           one input again

Inputs are placed so that they end where a protected page begins: reading one byte too far ends the process, with or
without a sanitizer. For the address sanitizer, build the extensions with it into a copy of the tree and preload its
library; PYTHONMALLOC=malloc makes every small object visible to it::

    mkdir -p build/sanitized && cp -r src setup.py pyproject.toml README.md LICENSE build/sanitized
    cd build/sanitized && find src -name '*.so' -delete
    COMETMQ_SANITIZE=1 COMETMQ_REQUIRE_EXT=1 ../../.venv/bin/python setup.py -q build_ext --inplace && cd ../..
    export LD_PRELOAD=$(gcc -print-file-name=libasan.so) PYTHONPATH=build/sanitized/src PYTHONMALLOC=malloc
    ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 .venv/bin/python -m bench.fuzz --count 2_000_000 --seed 1

The exit code is 1 when a decoder raised anything but the errors it announces, or when memory grew.
"""
