"""The Java side, built once: jars from Maven Central and the compiled peer program.

Everything goes below ``build/interop`` of the repository (or ``COMETMQ_INTEROP_CACHE``), under a lock, with a
stamp that holds a digest of the inputs: later runs need neither Maven nor a network.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

JAVA_DIR = Path(__file__).parents[1] / "java"
REPOSITORY = Path(__file__).parents[3]
BUILD_SECONDS_MAX = 600
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class Unavailable(Exception):
    """Java, Maven or the jars are missing here: the interop tests are skipped with this reason."""


@dataclass(frozen=True)
class JavaKit:
    """What it takes to start a Java process."""

    java: str
    classpath: str
    home: Path  # rocketmq.home.dir: conf/logback_*.xml

    def command(self, *arguments: str, heap_mb: int, properties: dict[str, str] | None = None) -> list[str]:
        opened = ("java.nio", "sun.nio.ch", "jdk.internal.ref", "jdk.internal.misc", "java.lang")
        return [
            self.java,
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in opened),
            # short lives on a small machine: little heap, no optimising compiler, no parallel collector
            f"-Xmx{heap_mb}m",
            f"-XX:MaxDirectMemorySize={heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Dfile.encoding=UTF-8",
            "-Duser.timezone=UTC",
            *(f"-D{name}={value}" for name, value in (properties or {}).items()),
            "-cp",
            self.classpath,
            *arguments,
        ]


def cache_directory() -> Path:
    cache = Path(os.environ.get("COMETMQ_INTEROP_CACHE", REPOSITORY / "build" / "interop"))
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def build_java() -> JavaKit:
    cache = cache_directory()
    java, javac = shutil.which("java"), shutil.which("javac")
    if not java or not javac:
        raise Unavailable("a JDK (java, javac) is not installed")
    with locked(cache / "lock"):
        _fetch_jars(cache)
        classes = _compile(javac, cache)
        _prepare_home(cache / "home")
    return JavaKit(java, f"{classes}:{cache / 'lib'}/*", cache / "home")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_jars(cache: Path) -> None:
    pom = JAVA_DIR / "pom.xml"
    stamp, digest = cache / "lib.stamp", digest_of([pom])
    if is_current(stamp, digest):
        return
    maven = shutil.which("mvn")
    if not maven:
        raise Unavailable("Maven (mvn) is not installed and the RocketMQ jars are not cached")
    shutil.rmtree(cache / "lib", ignore_errors=True)
    options = [f"-DoutputDirectory={cache / 'lib'}", "-DincludeScope=runtime", "-f", str(pom)]
    run_build(
        [maven, "-q", "-B", COPY_GOAL, *options], "Maven could not fetch the RocketMQ jars", Unavailable
    )
    stamp.write_text(digest)


def _compile(javac: str, cache: Path) -> Path:
    """The directory of the classes, named by the sources: another session may still run the former ones."""
    sources = sorted(JAVA_DIR.rglob("*.java"))
    digest = digest_of([JAVA_DIR / "pom.xml", *sources])
    classes, making = cache / f"classes-{digest[:12]}", cache / "classes.new"
    if not classes.exists():
        shutil.rmtree(making, ignore_errors=True)
        options = ["-nowarn", "-encoding", "UTF-8", "-cp", f"{cache / 'lib'}/*", "-d", str(making)]
        run_build([javac, *options, *map(str, sources)], "the peer program does not compile", RuntimeError)
        making.rename(classes)
    return classes


def _prepare_home(home: Path) -> None:
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for part in ("tools", "broker", "namesrv"):
        shutil.copyfile(JAVA_DIR / "logback.xml", conf / f"logback_{part}.xml")


def run_build(command: list[str], failure: str, error: type[Exception]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    if done.returncode:
        raise error(f"{failure}: {(done.stdout + done.stderr).strip()[-2000:]}")


def digest_of(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def is_current(stamp: Path, digest: str) -> bool:
    return stamp.exists() and stamp.read_text() == digest
