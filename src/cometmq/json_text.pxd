# JSON headers as clients write them, read and written byte by byte. For the compiled twins only; see big_endian.pxd for how.
#
# None of this decides what JSON means: whatever looks unusual is NOT_PLAIN, and goes to a real decoder.

from libc.string cimport memchr, memcpy

cdef enum:
    NOT_PLAIN = -1


cdef inline int clean_text(const unsigned char* p, Py_ssize_t size) noexcept nogil:
    """0: has control characters, 1: plain ASCII, 2: has bytes that need a UTF-8 check."""
    cdef unsigned char high = 0, control = 0
    cdef Py_ssize_t i
    for i in range(size):
        high |= p[i]
        control |= p[i] < 0x20
    if control:
        return 0
    return 2 if high & 0x80 else 1


cdef inline bint read_number(const unsigned char* p, Py_ssize_t size, long long* out) noexcept nogil:
    """Parse all of [p, p+size) as a decimal number of at most 18 digits."""
    cdef bint negative = size > 0 and p[0] == c"-"
    cdef Py_ssize_t i = 1 if negative else 0
    cdef long long value = 0
    if size - i < 1 or size - i > 18:
        return False
    while i < size:
        if p[i] < c"0" or p[i] > c"9":
            return False
        value = value * 10 + (p[i] - c"0")
        i += 1
    out[0] = -value if negative else value
    return True


cdef inline Py_ssize_t number_end(const unsigned char* p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    while pos < end and (p[pos] == c"-" or c"0" <= p[pos] <= c"9"):
        pos += 1
    return pos


cdef inline Py_ssize_t string_end(const unsigned char* p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    """Position of the quote that ends the string whose text starts at ``pos``."""
    cdef const unsigned char* quote
    cdef Py_ssize_t start = pos, back
    while pos < end:
        quote = <const unsigned char*> memchr(p + pos, c'"', end - pos)
        if quote == NULL:
            return NOT_PLAIN
        pos = quote - p
        back = pos
        while back > start and p[back - 1] == c"\\":
            back -= 1
        if (pos - back) & 1 == 0:
            return pos
        pos += 1
    return NOT_PLAIN


cdef inline Py_ssize_t word_end(const unsigned char* p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    """The same for short text without any escape (a loop beats memchr on a few bytes)."""
    while pos < end and p[pos] != c'"':
        if p[pos] == c"\\":
            return NOT_PLAIN
        pos += 1
    return pos if pos < end else NOT_PLAIN


cdef inline int hex_digit(unsigned char c) noexcept nogil:
    if c"0" <= c <= c"9":
        return c - c"0"
    if c"a" <= c <= c"f":
        return c - c"a" + 10
    if c"A" <= c <= c"F":
        return c - c"A" + 10
    return -1


cdef inline int ascii_escape(const unsigned char* p) noexcept nogil:
    """The character that the four digits of a \\u escape stand for; -1 unless it is one of ASCII."""
    cdef int code = 0, digit, k
    for k in range(4):
        digit = hex_digit(p[k])
        if digit < 0:
            return -1
        code = code * 16 + digit
    return code if code < 0x80 else -1


cdef inline Py_ssize_t unescape(const unsigned char* p, Py_ssize_t size, unsigned char* out) noexcept nogil:
    """The text of a string to bytes; NOT_PLAIN for an escape that is not one ASCII character."""
    cdef const unsigned char* back
    cdef Py_ssize_t i = 0, n = 0, run
    cdef int code
    while i < size:
        back = <const unsigned char*> memchr(p + i, c"\\", size - i)
        run = (size if back == NULL else back - p) - i
        memcpy(out + n, p + i, run)
        n += run
        i += run
        if i >= size:
            break
        if i + 1 >= size:
            return NOT_PLAIN
        if p[i + 1] == c"u":
            code = ascii_escape(p + i + 2) if i + 6 <= size else -1
            if code < 0:
                return NOT_PLAIN
            out[n] = <unsigned char> code
            i += 6
        elif p[i + 1] == c'"' or p[i + 1] == c"\\" or p[i + 1] == c"/":
            out[n] = p[i + 1]
            i += 2
        else:
            return NOT_PLAIN
        n += 1
    return n


cdef inline Py_ssize_t write_number(unsigned char* p, long long value) noexcept nogil:
    cdef unsigned char digits[24]
    cdef Py_ssize_t count = 0, n = 0
    if value < 0:
        p[0] = c"-"
        n = 1
        value = -value
    while True:
        digits[count] = <unsigned char> (c"0" + value % 10)
        count += 1
        value //= 10
        if value == 0:
            break
    while count > 0:
        count -= 1
        p[n] = digits[count]
        n += 1
    return n


cdef inline Py_ssize_t write_hex(unsigned char* p, long long value) noexcept nogil:
    """Sixteen upper-case digits."""
    cdef int k, nibble
    for k in range(16):
        nibble = (value >> (60 - 4 * k)) & 15
        p[k] = <unsigned char> (nibble + (c"0" if nibble < 10 else c"A" - 10))
    return 16
