"""Only the list of extension modules; everything else stands in pyproject.toml.

Every ``*_cy.py`` file is valid Python and is compiled by Cython when a C compiler is at hand.

COMETMQ_REQUIRE_EXT=1   a failed compilation fails the build
COMETMQ_DISABLE_EXT=1   build a pure wheel
COMETMQ_SANITIZE=1      build with the address sanitizer (for the fuzzer)
"""

import os
from pathlib import Path

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    if os.environ.get("COMETMQ_DISABLE_EXT") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    sanitize = os.environ.get("COMETMQ_SANITIZE") == "1"
    flags = ["-fsanitize=address", "-O1", "-g", "-fno-omit-frame-pointer"] if sanitize else ["-O3"]
    modules = [
        Extension(
            ".".join(path.with_suffix("").relative_to("src").parts),
            [str(path)],
            extra_compile_args=flags,
            extra_link_args=["-fsanitize=address"] if sanitize else [],
        )
        for path in sorted(Path("src").rglob("*_cy.py"))
    ]
    directives = {
        "language_level": 3,
        "boundscheck": False,
        "wraparound": False,
        "cdivision": True,
        "warn.unreachable": False,  # the Python branch behind `if cython.compiled: return ...`
    }
    compiled = cythonize(modules, build_dir="build/cython", compiler_directives=directives, quiet=True)
    for module in compiled:  # cythonize makes new objects and forgets this
        module.optional = os.environ.get("COMETMQ_REQUIRE_EXT") != "1"
    return compiled


setup(ext_modules=extensions())
