"""Each test of decoding runs by the pure decoder, and by the compiled one where it was built."""

import os
from collections.abc import Iterator

import pytest

from pyrmq_core.columnar.decoding.compiled import SETTING, decoder
from tests.support.native_build import built_site


@pytest.fixture(scope="module", params=("pure", "compiled"))
def each_decoder(request: pytest.FixtureRequest) -> Iterator[str]:
    """Has `decode_batches` use the decoder of this name, and asserts that it does."""
    name: str = request.param
    with pytest.MonkeyPatch.context() as patch:
        if name == "compiled":
            site = built_site()
            if site is None:
                reason = "the compiled decoder is not built: make native"
                (pytest.fail if os.environ.get("PYRMQ_REQUIRE_NATIVE") == "1" else pytest.skip)(reason)
            patch.delenv(SETTING)
            patch.syspath_prepend(str(site))
        decoder.cache_clear()
        choice = decoder()
        assert (choice.decode is not None) == (name == "compiled"), choice.reason
        yield name
    decoder.cache_clear()
