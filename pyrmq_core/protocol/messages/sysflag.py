"""The bits of a message's sysFlag: an enum for display, and integer masks for code that runs for every message.

Sources: common/sysflag/MessageSysFlag.java, common/compression/CompressionType.java (5.4.0).
"""

import enum
from typing import Final


class SysFlag(enum.IntFlag):
    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


# Bits of `SysFlag` as integers, since arithmetic on an IntFlag costs about a microsecond.
COMPRESSED: Final = 0x1
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
# A record with both bits contains a batch, which only batch topics (5.x) have.
BATCH_RECORD: Final = 0xC0
COMPRESSION_SHIFT: Final = 8
COMPRESSION_MASK: Final = 0x700
