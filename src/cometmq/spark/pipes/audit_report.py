"""The audit as one HTML file: verdict, tables, latencies as bars, the lag of each group drawn as SVG.

No script, nothing from elsewhere: it can be mailed and opens in ten years.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from html import escape

from cometmq.spark.pipes.audit import PERCENTILES, Audit, GroupAudit

WIDTH, HEIGHT = 640, 250  # pixels
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 26  # margins of a plot
TICKS = 4

_STYLE = """
:root{--ink:#1c2733;--soft:#5b6875;--line:#e3e8ee;--blue:#1565c0;--fill:#e3f0fd;--bad:#b3261e;--good:#1b7f4d}
body{font:15px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif;margin:0;background:#f5f7fa;color:var(--ink)}
main{max-width:980px;margin:0 auto;padding:28px 24px 40px}
h1{font-size:26px;margin:0 0 2px}h2{font-size:18px;margin:0 0 12px}
.sub{color:var(--soft);margin:0 0 20px}
.card{background:#fff;border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:0 0 16px}
.tiles{display:grid;grid-template-columns:repeat(5,1fr);gap:12px;margin:0 0 16px}
.tile{background:#fff;border:1px solid var(--line);border-radius:10px;padding:12px 14px}
.tile b{display:block;font-size:24px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.verdict{border-left:5px solid var(--good);font-weight:600}.verdict.bad{border-left-color:var(--bad)}
.bad b,.bad td,td.bad{color:var(--bad)}
.group{display:grid;grid-template-columns:280px 1fr;gap:24px;align-items:start}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td{padding:5px 0;border-bottom:1px solid var(--line)}td+td{text-align:right}
caption{text-align:left;color:var(--soft);font-size:13px;padding:10px 0 2px}
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--soft)}
.note{color:var(--soft);font-size:13px;margin:12px 0 0}
@media(max-width:760px){.group{grid-template-columns:1fr}.tiles{grid-template-columns:repeat(2,1fr)}}
"""


def report_html(found: Audit, *, made: datetime | None = None) -> str:
    made = datetime.now(UTC) if made is None else made
    parts = [
        f"<h1>Audit of {escape(found.topic)}</h1>",
        f'<p class="sub">Sent against stored against consumed, {made:%Y-%m-%d %H:%M} UTC</p>',
        _verdict(found),
        _tiles(found),
        *(_group_html(group) for group in found.groups),
        '<p class="note">From the trace records of the clients and the messages themselves. A client that died took '
        "its last records with it: its messages may be consumed and not recorded.</p>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>Audit of {escape(found.topic)}</title>'
        f"<style>{_STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _verdict(found: Audit) -> str:
    if found.lost:
        examples = ", ".join(escape(message_id) for message_id in found.lost_examples)
        return (
            f'<div class="card verdict bad">{found.lost:,} messages were sent with success and are not stored, '
            f"for example {examples}</div>"
        )
    return '<div class="card verdict">Every message that was sent with success is stored</div>'


def _tiles(found: Audit) -> str:
    tiles = (
        ("sent with success", f"{found.sent:,}", False),
        ("stored", f"{found.stored:,}", False),
        ("sent, not stored", f"{found.lost:,}", found.lost > 0),
        ("ids stored twice", f"{found.duplicates:,}", found.duplicates > 0),
        ("sends failed", f"{found.failed_sends:,}", found.failed_sends > 0),
    )
    cells = "".join(
        f'<div class="tile{" bad" if bad else ""}"><b>{value}</b><span>{name}</span></div>'
        for name, value, bad in tiles
    )
    times = ", ".join(
        f"{share:.0%} within {_duration(value)}"
        for share, value in zip(PERCENTILES, found.send_ms, strict=False)
    )
    sends = f'<p class="sub">A send took: {times}</p>' if times else ""
    return f'<div class="tiles">{cells}</div>{sends}'


def _percentile_rows(values: list[float]) -> str:
    return "".join(
        f"<tr><td>{share:.0%} within</td><td>{_duration(value)}</td></tr>"
        for share, value in zip(PERCENTILES, values, strict=False)
    )


def _duration(ms: float) -> str:
    """
    >>> _duration(53.2), _duration(12_345)
    ('53 ms', '12.3 s')
    """
    return f"{ms:.0f} ms" if ms < 10_000 else f"{ms / 1000:.1f} s"


def _group_html(group: GroupAudit) -> str:
    rows = (
        ("messages consumed", group.consumed, False),
        ("deliveries", group.deliveries, False),
        ("deliveries that failed", group.failed_deliveries, group.failed_deliveries > 0),
        ("not recorded as consumed", group.unconsumed, group.unconsumed > 0),
    )
    table = "".join(
        f"<tr><td>{name}</td><td{' class=bad' if bad else ''}>{value:,}</td></tr>"
        for name, value, bad in rows
    )
    latency = _percentile_rows(group.latency_ms)
    return (
        f'<div class="card"><h2>Group {escape(group.group)}</h2><div class="group"><div><table>{table}</table>'
        f"<table><caption>From sending to consumed</caption>{latency}</table></div>"
        f"<div>{lag_svg(group.lag)}</div></div></div>"
    )


# --- the plot ---


def nice_top(value: int) -> int:
    """The smallest number that is not below and divides into round parts.

    >>> [nice_top(value) for value in (1, 3, 11, 717, 1021)]
    [1, 4, 12, 800, 1200]
    """
    if value <= 1:
        return 1
    power = 10 ** math.floor(math.log10(value))
    tops = (factor * power / 10 for factor in (10, 12, 16, 20, 24, 32, 40, 60, 80, 100))
    return next(int(top) for top in tops if top >= value and top.is_integer())


def lag_svg(lag: list[tuple[int, int]]) -> str:
    """The lag over time as steps: it stays until something happens."""
    if not lag:
        return '<p class="note">No message was stored or consumed.</p>'
    first, last = lag[0][0], max(lag[-1][0], lag[0][0] + 1)
    most = max(value for _, value in lag)
    top = nice_top(most)

    def x(second: float) -> float:
        return LEFT + (second - first) * (WIDTH - LEFT - RIGHT) / (last - first)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - max(value, 0.0) * (HEIGHT - TOP - BOTTOM) / top

    points = [f"{x(second):.1f},{y(value):.1f}" for second, value in _steps(lag)]
    area = " ".join([f"{x(first):.1f},{y(0):.1f}", *points, f"{x(last):.1f},{y(0):.1f}"])
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="lag over time, at most {most} messages">'
        f"{_grid(top, y)}"
        f'<polygon fill="#e3f0fd" points="{area}"/>'
        f'<polyline fill="none" stroke="#1565c0" stroke-width="2" points="{" ".join(points)}"/>'
        f"{_time_axis(first, last, x)}</svg>"
        f'<p class="note">Lag in messages over time, at most {most:,}</p>'
    )


def _steps(lag: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    previous = 0
    for second, value in lag:
        yield second, previous
        yield second, value
        previous = value


def _grid(top: int, y: Callable[[float], float]) -> str:
    lines = []
    for number in range(TICKS + 1):
        value = top * number / TICKS
        if value != int(value):
            continue
        lines.append(
            f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" stroke="#e3e8ee"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{int(value):,}</text>'
        )
    return "".join(lines)


def _time_axis(first: int, last: int, x: Callable[[float], float]) -> str:
    """Clock times at both ends and between; with the day where the plot is longer than one."""
    form = "%H:%M:%S" if last - first < 86_400 else "%m-%d %H:%M"
    texts = []
    for number, anchor in enumerate(("start", "middle", "middle", "end")):
        second = first + (last - first) * number / 3
        text = datetime.fromtimestamp(second, UTC).strftime(form)
        texts.append(f'<text x="{x(second):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{text}</text>')
    return "".join(texts)
