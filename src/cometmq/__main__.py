"""``python -m cometmq``: the same as the command ``cometmq``."""

from __future__ import annotations

import sys

from cometmq.cli.main import main

sys.exit(main())
