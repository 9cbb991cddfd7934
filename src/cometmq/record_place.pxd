# Where a queue's records should be, and whether one of them is there. For the compiled twins only; see big_endian.pxd for how.
# The specification is store/queue_scan_cy.py, `is_record_of`.

from libc.string cimport memcmp

from cometmq.big_endian cimport get_i32, get_i64, get_u32


cdef struct Place:  # Home
    const unsigned char* log
    long long log_start
    long long log_end
    long long queue_start
    const unsigned char* topic
    long long topic_size
    int queue_id
    bint lenient


cdef inline bint is_true(Place* place, long long queue_offset, long long physical_offset, long long size) noexcept nogil:
    """Does the record that an entry points to say the same of itself?"""
    cdef long long at
    cdef unsigned int sys_flag
    cdef const unsigned char* p
    if size < 91 or physical_offset < place.log_start or physical_offset > place.log_end - size:
        return False
    p = place.log + (physical_offset - place.log_start)
    if get_u32(p) != size or get_u32(p + 4) != <unsigned int> 0xDAA320A7 or get_i64(p + 28) != physical_offset:
        return False
    if place.lenient:
        return True
    if get_i32(p + 12) != place.queue_id or get_i64(p + 20) != queue_offset:
        return False
    sys_flag = get_u32(p + 36)
    at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    if at + 7 > size:
        return False
    at += 4 + <long long> get_u32(p + at)
    if at + 3 + place.topic_size > size:
        return False
    return p[at] == place.topic_size and memcmp(p + at + 1, place.topic, place.topic_size) == 0
