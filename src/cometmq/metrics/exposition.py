"""The Prometheus text format: families of samples in, text out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"

Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """All samples of one metric."""

    name: str
    help: str
    kind: str = GAUGE
    samples: list[tuple[str, Labels, float]] = field(
        default_factory=list
    )  # (suffix of the name, labels, value)

    def add(self, value: float, **labels: str) -> Family:
        self.samples.append(("", labels, value))
        return self

    def add_histogram(
        self, bounds: Sequence[float], counts: Sequence[int], total: float, **labels: str
    ) -> Family:
        """``counts`` has one class more than ``bounds``: the one without an upper bound."""
        running = 0
        for bound, count in zip((*map(_number, bounds), "+Inf"), counts, strict=True):
            running += count
            self.samples.append(("_bucket", {**labels, "le": bound}, running))
        self.samples.append(("_sum", labels, total))
        self.samples.append(("_count", labels, running))
        return self


def render(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escape_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [
            f"{family.name}{suffix}{_labels(labels)} {_number(value)}"
            for suffix, labels, value in family.samples
        ]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
