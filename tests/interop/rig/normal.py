"""Printed text without what two runs can never share: ports, times, ids, directories."""

from __future__ import annotations

import re

# Log lines that another thread of the Java process wrote meanwhile: logback without a configuration, the client's own.
LOG_LINE = r"\d\d:\d\d:\d\d\.\d{3} \[[^\n]*?\] (?:TRACE|DEBUG|INFO|WARN|ERROR) [^\n]*"
LOGGER_WARNING = r"(?:RocketMQLog|SLF4J|log4j):[^\n]*"

RULES = [
    (rf"(?m)^(?:{LOG_LINE}|{LOGGER_WARNING})(?:\n|\Z)", ""),
    (r"(?m)^\s+at [\w.$/<>]+\(.*\)\n", ""),  # stack frames of the tool itself
    (r"(?m)^\s+\.\.\. \d+ more\n", ""),
    (r"[\[\]0-9a-fA-F.:%]+@\d+#\d+", "CLIENT"),
    (r"@admin\d+", "@admin"),
    (r"-(CONSUME|PRODUCE)-\d+\b", r"-\1-N"),
    (r"\b[0-9A-F]{56}\b|\b[0-9A-F]{40}\b|\b[0-9A-F]{32}\b", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,.:]\d{3})?", "TIME"),
    (r"\b1[5-9]\d{11}\b", "MS"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"(?i)(listenPort\"?\s*[=:]\s*\"?)\d+", r"\1PORT"),
    (r"\brt=\d+ms", "rt=N ms"),
    (r"\b\d+ms\b\s*", "N ms "),
    (r"spentTimeMills=\d+", "spentTimeMills=N"),
    (r"(?m)[ \t]+$", ""),
]
COMPILED = [(re.compile(pattern), text) for pattern, text in RULES]
VALUE_LENGTH_MIN = 7  # shorter values may be parts of other words


def normal(text: str, values: dict[str, str]) -> str:
    """``values`` of this run become their names: an address is BROKER, the export directory DIR."""
    for name, value in sorted(values.items(), key=lambda item: -len(item[1])):
        if len(value) >= VALUE_LENGTH_MIN:
            text = text.replace(value, name.upper())
    for pattern, replacement in COMPILED:
        text = pattern.sub(replacement, text)
    return text.strip() + "\n"
