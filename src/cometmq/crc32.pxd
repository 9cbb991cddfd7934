# CRC-32 with zlib's polynomial, sixteen bytes a step. For the compiled twins only (the others ask zlib):
#
#     if cython.compiled:
#         from cython.cimports.cometmq.crc32 import crc32, fill_crc_tables
#
#         fill_crc_tables()
#
# A call of zlib.crc32 needs a slice of the buffer as an object, which costs as much as the sum of a kilobyte.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static uint32_t comet_crc[16][256]; /* [k][n]: the sum of byte n with k zero bytes behind it */

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
    }

    static uint32_t comet_crc32(const unsigned char* p, Py_ssize_t size) {
        uint32_t crc = 0xFFFFFFFFu;
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
        return crc ^ 0xFFFFFFFFu;
    }
    """
    void fill_crc_tables "comet_crc_fill" () noexcept nogil
    unsigned int crc32 "comet_crc32" (const unsigned char* p, Py_ssize_t size) noexcept nogil
