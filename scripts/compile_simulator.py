"""Compile the simulator and the cores that run in it, unchanged, into a directory of their own.

    python scripts/compile_simulator.py DIRECTORY
    PYTHONPATH=DIRECTORY python -m sim groups 0 10000

The same seeds give the same histories, in less time: compare the fingerprints that ``python -m sim`` prints.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent.parent
ROOTS = (ROOT / "tests", ROOT / "src")


def sources() -> dict[str, Path]:
    """Every module of ours that the simulated worlds load."""
    sys.path[:0] = [str(root) for root in ROOTS]
    importlib.import_module("sim.group_world")  # and all that it needs
    return {
        name: Path(module.__file__)
        for name, module in sys.modules.items()
        if name.partition(".")[0] in ("sim", "cometmq") and getattr(module, "__file__", None)
    }


def copy(found: dict[str, Path], directory: Path) -> list[Extension]:
    modules = []
    for name, path in found.items():
        root = next(root for root in ROOTS if path.is_relative_to(root))
        target = directory / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if path.suffix == ".py" and path.stem != "__init__":
            modules.append(Extension(name, [str(target.relative_to(directory))], extra_compile_args=["-O2"]))
    shutil.copyfile(ROOT / "tests" / "sim" / "__main__.py", directory / "sim" / "__main__.py")
    return modules


def build(modules: list[Extension], directory: Path) -> None:
    os.chdir(directory)
    # Annotations are for people here: typed by them, a NamedTuple would be no tuple.
    compiled = cythonize(
        modules, quiet=True, compiler_directives={"language_level": 3, "annotation_typing": False}
    )
    command = Distribution({"ext_modules": compiled}).get_command_obj("build_ext")
    command.inplace = True
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    target = parser.parse_args().directory.resolve()
    build(copy(sources(), target), target)
