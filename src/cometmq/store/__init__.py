"""Everything under a store directory; plain synchronous calls, no network, no asyncio.

``store`` is the facade that others use. Behind it: the log (``commit_log``, ``mapped_file``, ``populate``, ``flush``),
what follows from it (``dispatch``, ``queue_table``, ``consume_queue``, ``index``), reading (``reader``,
``time_search``, ``key_search``), and what keeps it in order (``recovery``, ``retention``, ``log_cut``). ``inspect``,
``verify`` and ``dump`` look at a directory from outside, also beside a running broker.
"""
