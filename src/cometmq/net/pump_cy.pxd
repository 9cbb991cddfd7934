# What other compiled modules use of pump_cy.py without the detour through Python.


cdef class Traffic:
    cdef public long long bytes_in
    cdef public long long bytes_out


cdef class Served:
    cdef public object transport  # set before anything else happens
    cdef public Traffic traffic
    cdef public bytes born_host  # the peer, as records have it
    cdef public bint closed
    cdef public long long last_active_ms
    cdef public long long partial_since_ms  # when the incomplete frame began, 0 = none
    cdef public long long bytes_written
    cpdef object answer(self, bytes frames)
    cdef object write_answer(self, bytes frames)


cdef class BatchPath:
    cpdef Py_ssize_t take(self, Served connection, object view, Py_ssize_t start, Py_ssize_t end)
    cpdef object settle(self)
    cpdef object finish(self)
