"""Logs of a server process: to stderr, as lines for people or (``--log-json``) as one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
import time

LINE_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s %(message)s"
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
LEVELS = ("debug", "info", "warning", "error")


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(level: str = "info", *, as_json: bool = False) -> None:
    """Replace whatever the root logger had: a server owns its process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(LINE_FORMAT, TIME_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
