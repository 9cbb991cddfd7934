"""The text format of Prometheus."""

from __future__ import annotations

from cometmq.metrics.exposition import COUNTER, HISTOGRAM, Family, render


def test_families_are_rendered_with_help_type_and_labels() -> None:
    family = Family("m_total", "what", COUNTER).add(3, topic='a"b\\c\n').add(0.5)
    assert render([family]) == (
        '# HELP m_total what\n# TYPE m_total counter\nm_total{topic="a\\"b\\\\c\\n"} 3\nm_total 0.5\n'
    )


def test_histogram_classes_add_up() -> None:
    family = Family("h", "times", HISTOGRAM).add_histogram([0.1, 1], [2, 3, 4], 5.5)
    assert render([family]).splitlines()[2:] == [
        'h_bucket{le="0.1"} 2',
        'h_bucket{le="1"} 5',
        'h_bucket{le="+Inf"} 9',
        "h_sum 5.5",
        "h_count 9",
    ]
