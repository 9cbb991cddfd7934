# What other compiled modules use of dispatch_cy.py without the detour through Python.


cdef class Dispatching:
    cdef public list woken  # watched queues that got entries in this call
    cdef public long long last_store_timestamp_ms
    cdef object enter_range(self, object buffer, long long start, long long end, long long physical_base)
