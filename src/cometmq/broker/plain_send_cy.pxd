# What other compiled modules use of plain_send_cy.py without the detour through Python.


cdef class RecordMaker:
    cdef readonly Py_ssize_t position  # in the log, after the last record
    cdef readonly Py_ssize_t count  # messages of the last call
    cdef readonly long long stored_size  # bytes of their records
    cdef readonly bytes responses  # to them
    cpdef Py_ssize_t consume(self, object view, Py_ssize_t start, Py_ssize_t end, bytes born_host, long long now_ms)
