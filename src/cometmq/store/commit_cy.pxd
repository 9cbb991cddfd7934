# What other compiled modules use of commit_cy.py without the detour through Python.

from cometmq.store.dispatch_cy cimport Dispatching


cdef class LogEnd:
    cdef public object view  # of the current file
    cdef public long long base  # physical offset of its first byte
    cdef public long long position  # after its last record
    cdef public long long tell_at  # position of which the preparer wants to hear
    cdef public long long last_store_timestamp_ms
    cdef long long move(self, long long end_position)


cdef class QueuesEnd:
    cdef public long long offset  # up to which queues and index are complete
    cdef public object confirmed  # queues know records below this offset only; None: all (no replica)
    cdef public object on_append  # called when the log has grown (replication), or None
    cdef LogEnd _log_end
    cdef Dispatching _dispatcher
    cdef long long complete_to(self, long long end_position)
    cdef object _appended(self, long long start, long long end)
