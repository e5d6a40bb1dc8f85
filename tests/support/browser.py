"""A headless Chromium of this system, driven by Selenium; pages on this machine are all that it visits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
# Without these Chromium tries to reach its maker at every start.
ARGUMENTS: Final = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
LOADED_WITHIN_SECONDS: Final = 30


def missing() -> str:
    """Returns what a test in a browser lacks on this machine; an empty text for nothing."""
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium: apt-get install chromium chromium-driver"
    return "" if shutil.which("chromedriver") else "no chromedriver: apt-get install chromium-driver"


@contextmanager
def browser(profile: Path, *arguments: str) -> Iterator[Chrome]:
    """Yields a browser with an empty profile, and ends it."""
    options = ChromeOptions()
    options.binary_location = next(path for name in BROWSERS if (path := shutil.which(name)))
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}", *arguments):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(LOADED_WITHIN_SECONDS)
        yield driver
    finally:
        driver.quit()
