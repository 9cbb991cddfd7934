"""The NameServer and broker of the demo in a process of their own; ends in order when its input ends.

``python -m cometmq.demo.standalone STORE``
"""

from __future__ import annotations

import asyncio
import logging
import sys

from cometmq.demo.children import input_ended
from cometmq.standalone import Standalone, StandaloneConfig

# The store is thrown away in a minute: files of a laptop's size, not of a server's.
SETTINGS = {
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}


async def serve(store: str) -> None:
    config = StandaloneConfig(store=store, port=0, nameserver_port=0, settings=SETTINGS)
    async with Standalone(config) as standalone:
        print(f"ready {standalone.nameserver_address}", flush=True)
        await input_ended()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(serve(sys.argv[1]))
