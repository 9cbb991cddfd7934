# The header of a plain send, read byte by byte. For the compiled twins only; see big_endian.pxd for how.
# The specification is broker/plain_request.py, `PlainHeader`.

from libc.string cimport memcmp

from cometmq.json_text cimport NOT_PLAIN, clean_text, number_end, read_number, string_end, word_end

cdef enum:  # as in the specification
    FIELD_TOPIC = 1
    FIELD_QUEUE_ID = 4
    FIELD_SYS_FLAG = 5
    FIELD_BORN = 6
    FIELD_FLAG = 7
    FIELD_PROPERTIES = 8
    FIELD_RECONSUME = 9
    FIELD_BATCH = 12
    FIELD_COUNT = 14


cdef struct SendHeader:
    long long code
    long long flag
    long long opaque
    Py_ssize_t[FIELD_COUNT] values  # where each field stands in the header
    Py_ssize_t[FIELD_COUNT] sizes  # -1: it is not there


cdef inline bint parse_send_header(SendHeader* header, const unsigned char* p, Py_ssize_t size):
    """Read all of [p, p+size); False: not plain."""
    cdef int text = clean_text(p, size)
    cdef Py_ssize_t i = 1, key, stop
    cdef long long number = 0
    cdef int k
    header.code = -1
    header.flag = 0
    header.opaque = 1 << 40
    for k in range(FIELD_COUNT):
        header.sizes[k] = -1
    if text == 0 or size < 2 or p[0] != c"{" or p[size - 1] != c"}":
        return False
    if text == 2 and not is_utf8(p, size):
        return False
    while i < size:
        if p[i] != c'"':
            return False
        key = i + 1
        stop = word_end(p, key, size)
        if stop < 0 or stop + 2 >= size or p[stop + 1] != c":":
            return False
        i = stop + 2
        if p[i] == c'"':
            stop = word_end(p, i + 1, size)
            if stop < 0 or not is_ignored(p + key, i - 2 - key):
                return False
            i = stop + 1
        elif p[i] == c"{":
            if i - 2 - key != 9 or memcmp(p + key, b"extFields", 9) != 0:
                return False
            i = parse_fields(header, p, i + 1, size)
            if i < 0:
                return False
        else:
            stop = number_end(p, i, size)
            if not read_number(p + i, stop - i, &number):
                return False
            if not keep_number(header, p + key, i - 2 - key, number):
                return False
            i = stop
        if i >= size:
            return False
        if p[i] == c"}":
            return i == size - 1 and is_send(header) and -2147483648 <= header.opaque <= 2147483647
        if p[i] != c",":
            return False
        i += 1
    return False


cdef inline bint is_utf8(const unsigned char* p, Py_ssize_t size):
    try:
        p[:size].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


cdef inline bint is_send(SendHeader* header) noexcept nogil:
    return header.code == 310 or header.code == 10 or header.code == 320


cdef inline bint is_ignored(const unsigned char* key, Py_ssize_t size) noexcept nogil:
    """Text members of the header that change nothing here."""
    if size == 8:
        return memcmp(key, b"language", 8) == 0
    return size == 23 and memcmp(key, b"serializeTypeCurrentRPC", 23) == 0


cdef inline bint keep_number(SendHeader* header, const unsigned char* key, Py_ssize_t size, long long number) noexcept nogil:
    if size == 4 and memcmp(key, b"code", 4) == 0:
        header.code = number
    elif size == 4 and memcmp(key, b"flag", 4) == 0:
        header.flag = number
    elif size == 6 and memcmp(key, b"opaque", 6) == 0:
        header.opaque = number
    else:
        return size == 7 and memcmp(key, b"version", 7) == 0
    return True


cdef inline Py_ssize_t parse_fields(SendHeader* header, const unsigned char* p, Py_ssize_t i, Py_ssize_t size) noexcept nogil:
    """extFields from behind its brace; the position behind the closing brace."""
    cdef Py_ssize_t key, stop
    cdef int field
    if not is_send(header):
        return NOT_PLAIN  # every known client writes "code" before "extFields"
    while i + 5 < size and p[i] == c'"':
        key = i + 1
        stop = i + 2 if p[i + 2] == c'"' else word_end(p, key, size)  # V2 has names of one letter
        if stop < 0 or stop + 2 >= size or p[stop + 1] != c":" or p[stop + 2] != c'"':
            return NOT_PLAIN
        field = field_of_v1(p + key, stop - key) if header.code == 10 else field_of_v2(p + key, stop - key)
        i = stop + 3
        stop = string_end(p, i, size) if field == FIELD_PROPERTIES else word_end(p, i, size)
        if field < 0 or stop < 0 or header.sizes[field] >= 0:
            return NOT_PLAIN
        header.values[field] = i
        header.sizes[field] = stop - i
        i = stop + 1
        if i >= size:
            return NOT_PLAIN
        if p[i] == c"}":
            return i + 1
        if p[i] != c",":
            return NOT_PLAIN
        i += 1
    return NOT_PLAIN


cdef inline int field_of_v2(const unsigned char* key, Py_ssize_t size) noexcept nogil:
    return key[0] - c"a" if size == 1 and c"a" <= key[0] < c"a" + FIELD_COUNT else -1


cdef inline int field_of_v1(const unsigned char* key, Py_ssize_t size) noexcept nogil:
    cdef const char** names = [
        b"producerGroup", b"topic", b"defaultTopic", b"defaultTopicQueueNums", b"queueId", b"sysFlag", b"bornTimestamp",
        b"flag", b"properties", b"reconsumeTimes", b"unitMode", b"maxReconsumeTimes", b"batch", b"bname",
    ]
    cdef Py_ssize_t* sizes = [13, 5, 12, 21, 7, 7, 13, 4, 10, 14, 8, 17, 5, 5]
    cdef int k
    for k in range(FIELD_COUNT):
        if sizes[k] == size and memcmp(key, names[k], size) == 0:
            return k
    return -1


cdef inline bint read_send_numbers(SendHeader* header, const unsigned char* p, long long* numbers) noexcept nogil:
    """The numeric fields; False when one is missing, malformed or out of range."""
    cdef int k
    numbers[<int> FIELD_RECONSUME] = 0
    for k in range(FIELD_QUEUE_ID, FIELD_RECONSUME + 1):
        if k == FIELD_PROPERTIES or (k == FIELD_RECONSUME and header.sizes[k] < 0):
            continue
        if header.sizes[k] < 0 or not read_number(p + header.values[k], header.sizes[k], numbers + k):
            return False
        if k != FIELD_BORN and not -2147483648 <= numbers[k] <= 2147483647:
            return False
    return True
