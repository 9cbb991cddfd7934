# What other compiled modules use of index_cy.py without the detour through Python.


cdef class KeySink:
    cdef object put_keys(self, object keys, long long count)
