"""A headless Chromium of this system, driven by Selenium; pages on this machine are all that it visits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from pyrmq_core.network.addresses import local_ip

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
LOADED_WITHIN_SECONDS: Final = 120
COLOURS: Final = 64
# Addresses of the machine that makes a picture: those of its own network, and ports that change with each run.
ANONYMOUS: Final = """
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  walker.currentNode.data = walker.currentNode.data
    .replaceAll(arguments[0], "192.0.2.7")
    .replace(/127\\.0\\.0\\.1:\\d+/g, "127.0.0.1:10911");
}
return Math.min(1100, Math.ceil(document.querySelector("footer").getBoundingClientRect().bottom + scrollY));
"""


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


def picture(chrome: Chrome, path: Path) -> None:
    """Saves the page as a small picture, as high as its content; this machine's own address is replaced."""
    height = chrome.execute_script(ANONYMOUS, local_ip())
    width = chrome.execute_script("return innerWidth")
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    image = Image.open(BytesIO(chrome.get_screenshot_as_png())).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
