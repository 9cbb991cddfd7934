# Numbers as they stand in frames, records and entries: big-endian, at any address. For the compiled twins only:
#
#     if cython.compiled:
#         from cython.cimports.cometmq.big_endian import get_i64, get_u32, put_32
#
# The caller has checked the length. A C compiler makes one load and one byte swap of each.


cdef inline unsigned int get_u32(const unsigned char* p) noexcept nogil:
    return (<unsigned int> p[0] << 24) | (<unsigned int> p[1] << 16) | (<unsigned int> p[2] << 8) | p[3]


cdef inline int get_i32(const unsigned char* p) noexcept nogil:
    return <int> get_u32(p)


cdef inline long long get_i64(const unsigned char* p) noexcept nogil:
    return <long long> ((<unsigned long long> get_u32(p) << 32) | get_u32(p + 4))


cdef inline void put_32(unsigned char* p, unsigned int value) noexcept nogil:
    p[0] = <unsigned char> (value >> 24)
    p[1] = <unsigned char> (value >> 16)
    p[2] = <unsigned char> (value >> 8)
    p[3] = <unsigned char> value


cdef inline void put_64(unsigned char* p, unsigned long long value) noexcept nogil:
    put_32(p, <unsigned int> (value >> 32))
    put_32(p + 4, <unsigned int> value)
