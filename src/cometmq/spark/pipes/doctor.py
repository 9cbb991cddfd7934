"""Doctor: is everything there that the pipelines need? Looks, changes nothing."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from typing import NamedTuple

from cometmq.errors import CometMQError
from cometmq.spark.arrow_cy import decode_columns
from cometmq.spark.cluster import Cluster
from cometmq.spark.java import find_java
from cometmq.spark.options import ClusterOptions, ReadOptions
from cometmq.spark.pipes.topics import account_of


class Finding(NamedTuple):
    what: str
    good: bool
    text: str


def doctor(name_server: str | None = None, options: Mapping[str, str] | None = None) -> list[Finding]:
    """Java, Python, packages, the NameServer, and the options as they would be used."""
    findings = [Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0]), _java()]
    findings += [_package(name) for name in ("pyspark", "pyarrow")]
    findings.append(_delta())
    compiled = type(decode_columns).__name__ != "function"
    findings.append(
        Finding(
            "decoder",
            True,
            "compiled" if compiled else "plain Python: about a hundred times slower; see make ext",
        )
    )
    if name_server is not None:
        findings.append(_reach(name_server, options or {}))
        findings += _options(name_server, options or {})
    return findings


def _java() -> Finding:
    try:
        java = find_java()
    except CometMQError as error:
        return Finding("Java", False, str(error))
    return Finding("Java", True, f"{java.version} from {java.origin} ({java.home})")


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed: pip install 'cometmq[spark]'")


def _delta() -> Finding:
    found = _package("deltalake")
    missing = "not installed; only archives of the format delta need it: pip install 'cometmq[delta]'"
    return found if found.good else Finding(found.what, True, missing)


def _reach(name_server: str, options: Mapping[str, str]) -> Finding:
    try:
        cluster = Cluster(
            ClusterOptions.parse({"nameServer": name_server, **account_of(options)}),
            timeout_ms=3000,
            retries=0,
        )
        topics = cluster.topics_like(".*")
    except CometMQError as error:
        return Finding("NameServer", False, str(error))
    return Finding("NameServer", True, f"{name_server} knows {len(topics)} topic{'s' * (len(topics) != 1)}")


def _options(name_server: str, options: Mapping[str, str]) -> list[Finding]:
    if not options:
        return []
    try:
        shown = ReadOptions.parse({"nameServer": name_server, **options}).describe()
    except CometMQError as error:
        return [Finding("options", False, str(error))]
    return [Finding(name, True, text) for name, text in shown.items()]
