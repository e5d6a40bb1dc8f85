"""docs/servers.md says what the NameServer does: its codes, its settings, its command."""

from __future__ import annotations

import re

from pyrmq_core.nameserver import NameServerConfig
from pyrmq_core.nameserver.config import NOT_BUILT, WITHOUT_EFFECT
from tests.support.server_page import PAGE, written


def test_the_codes_are_those_of_the_handlers() -> None:
    page = PAGE.read_text("utf-8")
    assert page == written(page), "run `python -m tests.support.server_page`"


def test_every_setting_with_effect_has_its_row_and_its_default() -> None:
    told: dict[str, str] = {}
    for names, defaults in re.findall(r"^\| (`.+?) \| (.+?) \|", PAGE.read_text("utf-8"), re.MULTILINE):
        texts = ["" if text == "none" else text.strip("`") for text in defaults.split(", ")]
        named = re.findall(r"`([\w.]+)`", names)
        told.update(zip(named, texts * len(named) if len(texts) == 1 else texts, strict=True))
    settings = NameServerConfig().to_settings()
    with_effect = settings.keys() - WITHOUT_EFFECT.keys() - NOT_BUILT.keys()
    assert told.keys() == with_effect
    for name in with_effect - {"kvConfigPath", "configStorePath"}:  # these derive from home and port
        assert told[name] == settings[name], name
