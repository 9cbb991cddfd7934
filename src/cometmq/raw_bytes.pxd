# Addresses as numbers, and bytes objects that are filled after they are made. For the compiled twins only; see big_endian.pxd for how.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memset


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
