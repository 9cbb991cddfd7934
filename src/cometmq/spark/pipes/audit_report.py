"""The audit as one HTML file: tables, and the lag of each group drawn as SVG. No script, nothing from elsewhere."""

from __future__ import annotations

from html import escape

from cometmq.spark.pipes.audit import PERCENTILES, Audit, GroupAudit

WIDTH, HEIGHT, MARGIN = 720, 200, 40  # pixels

_STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:60em;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}.bad{color:#b00020;font-weight:600}"
)


def report_html(found: Audit) -> str:
    rows = [
        ("sent with success", found.sent, False),
        ("sends that failed", found.failed_sends, found.failed_sends > 0),
        ("stored", found.stored, False),
        ("sent but not stored", found.lost, found.lost > 0),
        ("ids stored more than once", found.duplicates, found.duplicates > 0),
    ]
    table = "".join(
        f'<tr><td>{escape(name)}</td><td class="{"bad" if bad else ""}">{value}</td></tr>'
        for name, value, bad in rows
    )
    lost = (
        f"<p>Not stored, for example: {escape(', '.join(found.lost_examples))}</p>"
        if found.lost_examples
        else ""
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Audit of {escape(found.topic)}</title>'
        f"<style>{_STYLE}</style><h1>Audit of {escape(found.topic)}</h1><table>{table}</table>{lost}"
        f"<p>Time of a send: {_percentile_text(found.send_ms)}</p>"
        + "".join(_group_html(group) for group in found.groups)
        + "</html>"
    )


def _percentile_text(values: list[float]) -> str:
    if not values:
        return "not known"
    return ", ".join(
        f"{value:.0f} ms ({share:.0%})" for share, value in zip(PERCENTILES, values, strict=True)
    )


def _group_html(group: GroupAudit) -> str:
    rows = (
        ("messages consumed", group.consumed),
        ("deliveries", group.deliveries),
        ("deliveries that failed", group.failed_deliveries),
        ("stored and not consumed", group.unconsumed),
    )
    table = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    return (
        f"<h2>Group {escape(group.group)}</h2><table>{table}</table>"
        f"<p>From birth to consumed: {_percentile_text(group.latency_ms)}</p>{_lag_svg(group.lag)}"
    )


def _lag_svg(lag: list[tuple[int, int]]) -> str:
    """The lag over time as steps: it stays until something happens."""
    if not lag:
        return ""
    first, last = lag[0][0], max(lag[-1][0], lag[0][0] + 1)
    top = max(1, *(value for _, value in lag))

    def x(second: int) -> float:
        return MARGIN + (second - first) * (WIDTH - 2 * MARGIN) / (last - first)

    def y(value: int) -> float:
        return HEIGHT - MARGIN - max(value, 0) * (HEIGHT - 2 * MARGIN) / top

    points = [f"{x(first):.1f},{y(0):.1f}"]
    previous = 0
    for second, value in lag:
        points += [f"{x(second):.1f},{y(previous):.1f}", f"{x(second):.1f},{y(value):.1f}"]
        previous = value
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="lag over time">'
        f'<line x1="{MARGIN}" y1="{y(0)}" x2="{WIDTH - MARGIN}" y2="{y(0)}" stroke="#999"/>'
        f'<polyline fill="none" stroke="#1565c0" stroke-width="2" points="{" ".join(points)}"/>'
        f'<text x="{MARGIN}" y="{MARGIN - 10}" font-size="12">lag, at most {top} messages</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 12}" font-size="12" text-anchor="end">{last - first} s</text></svg>'
    )
