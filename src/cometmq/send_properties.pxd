# What is stored of a message's properties, in place. For the compiled twins only; see big_endian.pxd for how.
# The specification is broker/plain_request.py, `stored_properties`.

from libc.string cimport memchr, memcmp, memmove

from cometmq.json_text cimport NOT_PLAIN

cdef enum:
    PROPERTY_COUNT_MAX = 32  # as in the specification


cdef inline bint is_special(const unsigned char* p, Py_ssize_t size) noexcept nogil:
    """Is this the name of a property that makes a send special?"""
    if size == 5:
        return memcmp(p, b"DELAY", 5) == 0
    if size == 7 and memcmp(p, b"CLUSTER", 7) == 0:
        return True
    if size == 8 and memcmp(p, b"TRAN_MSG", 8) == 0:
        return True
    if size >= 6 and memcmp(p, b"TIMER_", 6) == 0:
        return True
    if size == 20 and memcmp(p, b"INNER_MULTI_DISPATCH", 20) == 0:
        return True
    return size == 24 and memcmp(p, b"INNER_MULTI_QUEUE_OFFSET", 24) == 0


cdef inline Py_ssize_t edit_properties(unsigned char* p, Py_ssize_t size, bint keep_wait) noexcept nogil:
    """Drop ``WAIT=true`` in place; the new size, or NOT_PLAIN for anything special or malformed."""
    cdef const unsigned char* found
    cdef Py_ssize_t i = 0, n = 0, stop, name, k
    cdef Py_ssize_t kept = 0
    cdef Py_ssize_t[PROPERTY_COUNT_MAX] starts
    cdef Py_ssize_t[PROPERTY_COUNT_MAX] names
    cdef bint is_wait
    while i < size:
        found = <const unsigned char*> memchr(p + i, 2, size - i)
        stop = size if found == NULL else found - p
        found = <const unsigned char*> memchr(p + i, 1, stop - i)
        if found == NULL:
            return NOT_PLAIN
        name = (found - p) - i
        if name == 0 or i + name + 1 == stop or is_special(p + i, name):
            return NOT_PLAIN
        is_wait = name == 4 and memcmp(p + i, b"WAIT", 4) == 0
        if is_wait and (stop - i != 9 or memcmp(p + i + 5, b"true", 4) != 0):
            return NOT_PLAIN
        if keep_wait or not is_wait:
            if kept == PROPERTY_COUNT_MAX:
                return NOT_PLAIN
            for k in range(kept):
                if names[k] == name and memcmp(p + starts[k], p + i, name) == 0:
                    return NOT_PLAIN
            if n > 0:
                p[n] = 2
                n += 1
            if n != i:
                memmove(p + n, p + i, stop - i)
            starts[kept] = n
            names[kept] = name
            kept += 1
            n += stop - i
        i = stop + 1
    return n
