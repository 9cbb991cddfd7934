# CRC-32 with zlib's polynomial. For the compiled twins only (the others ask zlib):
#
#     if cython.compiled:
#         from cython.cimports.cometmq.crc32 import crc32, fill_crc_tables
#
#         fill_crc_tables()
#
# A call of zlib.crc32 needs a slice of the buffer as an object, which costs as much as the sum of a kilobyte.
#
# Two ways. By table, sixteen bytes a step. And where the processor multiplies without carry (PCLMULQDQ, asked when the tables
# are filled) by folding: a message is a polynomial, so 16 bytes that stand d bits before others may be replaced by their
# product with x^d mod P, added to those others. Four such lanes run through the message; what is left of them, 16 bytes
# with the same remainder as all before, goes through the table. Bits are reflected, the lowest is the highest power: a
# product of two reflected words stands one bit too low, so the constants are shifted by one.
#
# Memory is asked for two kilobytes ahead: who checks a log goes from record to record, and the processor, which foresees
# what comes within a page, does not go on into the next (1 KiB: 0.10 us instead of 0.16 where nothing is in its cache).

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    #define COMET_CRC_FOLDS 1
    #define COMET_CRC_AHEAD 2048 /* bytes */
    #include <immintrin.h>
    static int comet_crc_can_fold;
    static uint64_t comet_crc_far[2], comet_crc_near[2]; /* x^(d+32), x^(d-32) mod P: d is four lanes, one lane */
    #endif

    static uint32_t comet_crc[16][256]; /* [k][n]: the sum of byte n with k zero bytes behind it */

    static uint64_t comet_crc_power(int n) { /* x^n mod P, shifted */
        uint32_t c = 0x80000000u;
        while (n--) c = c & 1 ? (c >> 1) ^ 0xEDB88320u : c >> 1;
        return (uint64_t)c << 1;
    }

    static void comet_crc_fill(void) {
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int k = 0; k < 8; k++) c = c & 1 ? (c >> 1) ^ 0xEDB88320u : c >> 1;
            comet_crc[0][n] = c;
        }
        for (uint32_t n = 0; n < 256; n++)
            for (int k = 1; k < 16; k++) {
                uint32_t c = comet_crc[k - 1][n];
                comet_crc[k][n] = comet_crc[0][c & 255] ^ (c >> 8);
            }
    #ifdef COMET_CRC_FOLDS
        comet_crc_far[0] = comet_crc_power(512 + 32);
        comet_crc_far[1] = comet_crc_power(512 - 32);
        comet_crc_near[0] = comet_crc_power(128 + 32);
        comet_crc_near[1] = comet_crc_power(128 - 32);
        __builtin_cpu_init();
        comet_crc_can_fold = __builtin_cpu_supports("pclmul") != 0;
    #endif
    }

    static uint32_t comet_crc_by_table(uint32_t crc, const unsigned char* p, Py_ssize_t size) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        for (; size >= 16; p += 16, size -= 16) {
            uint32_t words[4];
            memcpy(words, p, 16);
            words[0] ^= crc;
            crc = 0;
            for (int i = 0; i < 4; i++) {
                uint32_t w = words[i];
                crc ^= comet_crc[15 - 4 * i][w & 255] ^ comet_crc[14 - 4 * i][(w >> 8) & 255]
                    ^ comet_crc[13 - 4 * i][(w >> 16) & 255] ^ comet_crc[12 - 4 * i][w >> 24];
            }
        }
    #endif
        for (; size > 0; p++, size--) crc = comet_crc[0][(crc ^ *p) & 255] ^ (crc >> 8);
        return crc;
    }

    #ifdef COMET_CRC_FOLDS
    __attribute__((target("pclmul,sse2")))
    static inline __m128i comet_crc_fold(__m128i lane, __m128i powers, __m128i behind) {
        __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00), high = _mm_clmulepi64_si128(lane, powers, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), behind);
    }

    __attribute__((target("pclmul,sse2")))
    static uint32_t comet_crc_by_folding(uint32_t crc, const unsigned char* p, Py_ssize_t size) { /* size >= 64 */
        const __m128i far = _mm_loadu_si128((const __m128i*)comet_crc_far);
        const __m128i near = _mm_loadu_si128((const __m128i*)comet_crc_near);
        unsigned char rest[16];
        __m128i lanes[4];
        for (int i = 0; i < 4; i++) lanes[i] = _mm_loadu_si128((const __m128i*)p + i);
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
        for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
            _mm_prefetch((const char*)p + COMET_CRC_AHEAD, _MM_HINT_T0);
            for (int i = 0; i < 4; i++)
                lanes[i] = comet_crc_fold(lanes[i], far, _mm_loadu_si128((const __m128i*)p + i));
        }
        for (int i = 1; i < 4; i++) lanes[i] = comet_crc_fold(lanes[i - 1], near, lanes[i]);
        for (; size >= 16; p += 16, size -= 16)
            lanes[3] = comet_crc_fold(lanes[3], near, _mm_loadu_si128((const __m128i*)p));
        _mm_storeu_si128((__m128i*)rest, lanes[3]);
        return comet_crc_by_table(comet_crc_by_table(0, rest, 16), p, size);
    }
    #endif

    static uint32_t comet_crc32(const unsigned char* p, Py_ssize_t size) {
    #ifdef COMET_CRC_FOLDS
        if (size >= 64 && comet_crc_can_fold) return comet_crc_by_folding(0xFFFFFFFFu, p, size) ^ 0xFFFFFFFFu;
    #endif
        return comet_crc_by_table(0xFFFFFFFFu, p, size) ^ 0xFFFFFFFFu;
    }
    """
    void fill_crc_tables "comet_crc_fill" () noexcept nogil
    unsigned int crc32 "comet_crc32" (const unsigned char* p, Py_ssize_t size) noexcept nogil
