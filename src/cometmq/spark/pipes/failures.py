"""Failures of Spark in one sentence: what our own code said inside, or the first line of what Spark says.

Spark wraps an error of a Python data source into pages of traceback, twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cometmq.errors import ClientError, CometMQError

_OWN = re.compile(r"^(?:\S+: )?cometmq(?:\.\w+)+: (.+)$", re.MULTILINE)
_SPARK_CODE = re.compile(r"^\[(?P<code>[A-Z_.]+)\] (?P<text>.*)$", re.MULTILINE)
_STATE = re.compile(r" SQLSTATE: \w+.*$")
_JAVA = re.compile(r"^: (?P<kind>[\w.$]+): (?P<text>.+)$", re.MULTILINE)  # behind py4j's "An error occurred"
_QUERY = re.compile(r"^Query \[[^\]]*\] terminated with exception: ")


def sentence_of(error: BaseException | str) -> str:
    """
    >>> sentence_of("[X_Y] Column `a` is unknown. SQLSTATE: 42703; line 1")
    'Column `a` is unknown. (Spark: X_Y)'
    >>> sentence_of("Traceback\\n  ...\\ncometmq.errors.ConfigError: The topic x is unknown.\\n\\n at org.apache")
    'The topic x is unknown.'
    >>> sentence_of("cometmq.spark.pulls.DataLoss: Messages of t are gone.")
    'Messages of t are gone.'
    >>> sentence_of("An error occurred while calling o4.load.\\n: org.apache.spark.SparkException: Too late\\n\\tat x")
    'Too late (Java: SparkException)'
    """
    text = str(error)
    own = _OWN.findall(text)
    if own:
        return str(own[-1]).strip()
    found = _SPARK_CODE.search(text)
    if found:
        text = _QUERY.sub("", _STATE.sub("", found["text"]).strip())
        return f"{text} (Spark: {found['code']})"
    java = _JAVA.search(text)
    if java:
        kind = java["kind"].rpartition(".")[2]
        return (
            sentence_of(java["text"])
            if java["text"].startswith("[")
            else f"{java['text'].strip()} (Java: {kind})"
        )
    return text.strip().partition("\n")[0]


@contextmanager
def plain_failures(remedy: str = "") -> Iterator[None]:
    """Turn what Spark raises into an error of ours, with a word about what to do."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except CometMQError:
        raise
    except (PySparkException, Py4JJavaError) as error:
        raise ClientError(" ".join(part for part in (sentence_of(error), remedy) if part)) from error
