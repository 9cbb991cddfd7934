# Addresses as numbers, and bytes objects that are filled after they are made. For the compiled twins only; see big_endian.pxd for how.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy, memset


cdef inline unsigned char* at(long long address) noexcept nogil:
    return <unsigned char*> <void*> <Py_ssize_t> address


cdef inline long long address_of(const unsigned char* p) noexcept nogil:
    return <long long> <Py_ssize_t> <void*> p


cdef inline bint is_ascii(const unsigned char* p, long long size) noexcept nogil:
    cdef unsigned char bits = 0
    cdef long long i
    for i in range(size):
        bits |= p[i]
    return bits < 0x80


cdef inline long long next_mark(const unsigned char* p, long long position, long long end) noexcept nogil:
    """Where the next byte below 3 stands, or ``end``. Eight bytes a step: only those below 3 borrow and had no high bit."""
    cdef unsigned long long word
    while position + 8 <= end:
        memcpy(&word, p + position, 8)
        if (word - 0x0303030303030303ULL) & ~word & 0x8080808080808080ULL:
            break
        position += 8
    while position < end and p[position] > 2:
        position += 1
    return position


cdef inline bytes copied(const unsigned char* p, long long size):
    return PyBytes_FromStringAndSize(<const char*> p, size)


cdef inline bytes empty(long long size):
    """Of any content."""
    return PyBytes_FromStringAndSize(NULL, size)


cdef inline unsigned char* data_of(bytes target) noexcept:
    return <unsigned char*> PyBytes_AS_STRING(target)


cdef inline bytes zeros(long long size):
    cdef bytes target = empty(size)
    memset(data_of(target), 0, size)
    return target
