"""Bodies of requests and responses, one file per family; all can ``encode()`` and ``decode(bytes)``."""
