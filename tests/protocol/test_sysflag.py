"""The plain masks, which are the enum's numbers."""

from pyrmq_core.protocol.messages import sysflag
from pyrmq_core.protocol.messages.sysflag import SysFlag


def test_masks_are_the_enums_numbers() -> None:
    named = {flag.name: int(flag) for flag in SysFlag}
    assert named["COMPRESSED"] == sysflag.COMPRESSED
    assert named["TRANSACTION_PREPARED"] | named["TRANSACTION_COMMIT"] == sysflag.TRANSACTION_MASK
    assert int(SysFlag.TRANSACTION_ROLLBACK) == sysflag.TRANSACTION_MASK
    assert (named["BORN_HOST_V6"], named["STORE_HOST_V6"]) == (sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6)
    assert named["NEED_UNWRAP"] | named["INNER_BATCH"] == sysflag.BATCH_RECORD
    assert int(SysFlag.ZLIB | SysFlag.COMPRESSED) == 769


def test_a_flag_shows_what_it_holds() -> None:
    assert SysFlag(0xC1) == SysFlag.COMPRESSED | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
