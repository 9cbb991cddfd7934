"""Limits of everything a peer decides the size of. Each has its unit last and its reason beside it."""

from __future__ import annotations

FRAME_SIZE_MAX = 16 * 1024 * 1024  # bytes including the length word: what the Java decoder accepts
HEADER_SIZE_MAX = 0xFFFFFF  # bytes: the header length has 24 bits (a batch response lists up to 190,000 ids)
REMARK_SIZE_MAX = 1024 * 1024  # bytes: remarks carry stack traces, never more
EXT_KEY_SIZE_MAX = 32767  # bytes: the length is an int16
EXT_FIELD_COUNT_MAX = 1024  # fields: the widest known request has 20

TOPIC_SIZE_MAX = 127  # bytes: the length in a record is a signed byte
GROUP_SIZE_MAX = 255  # characters
PROPERTIES_SIZE_MAX = 32767  # bytes: the length in a record is an int16
BODY_SIZE_MAX = 4 * 1024 * 1024  # bytes: maxMessageSize, the default of broker and clients
DECOMPRESSED_SIZE_MAX = 64 * 1024 * 1024  # bytes: a compressed body may grow to this and no further
BATCH_ITEM_COUNT_MAX = BODY_SIZE_MAX // 22  # items: 22 bytes is the smallest possible item
RECORD_SIZE_MAX = FRAME_SIZE_MAX  # bytes: a record must fit into a frame

JSON_DEPTH_MAX = 64  # levels: the deepest real body has 7
JSON_SIZE_MAX = FRAME_SIZE_MAX  # bytes
JSON_REFERENCE_COUNT_MAX = 64  # references: nobody was seen to send any
JSON_TOLERANT_SIZE_MAX = 8 * 1024 * 1024  # characters: rewriting fastjson text takes about 0.3 s a MiB
HEADER_TOLERANT_SIZE_MAX = 128 * 1024  # characters: what a header that is not as it should be may cost us
