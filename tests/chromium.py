"""Real Chromium, headless, for tests of the report; skipped where it is missing."""

import pathlib
import tempfile

import pytest

CHROMIUM = pathlib.Path("/usr/bin/chromium")
DRIVER = pathlib.Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
MISSING = "no Chromium: the report is not tested in a browser"


class Browser:
    """A page in Chromium: what a person does to it, and what they see."""

    def __init__(self, width=1280, height=1000):
        if not (CHROMIUM.exists() and DRIVER.exists()):
            pytest.skip(MISSING)
        webdriver = pytest.importorskip("selenium.webdriver")
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-")
        for flag in (
            *FLAGS,
            f"--user-data-dir={self._profile.name}",
            f"--window-size={width},{height}",
        ):
            options.add_argument(flag)
        options.set_capability(
            "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
        )
        service = webdriver.ChromeService(str(DRIVER))
        self.driver = webdriver.Chrome(options=options, service=service)

    def quit(self):
        self.driver.quit()
        self._profile.cleanup()

    def open(self, path, *, has_scripts=True):
        self.cdp("Emulation.setScriptExecutionDisabled", value=not has_scripts)
        self.show_as("")
        self.driver.get(pathlib.Path(path).resolve().as_uri())

    def show_as(self, media):
        """For the screen or for "print", and without scrolling that takes time."""
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[calm])

    def cdp(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def texts(self, selector):
        """The texts of elements, as one line each, also of those out of sight."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((e) => e.textContent.replace(/\\s+/g, ' ').trim())",
            selector,
        )

    def is_seen(self, selector):
        """Whether an element takes up room on the page."""
        return self.run(
            "const e = document.querySelector(arguments[0]);"
            "return e !== null && e.getClientRects().length > 0"
            " && getComputedStyle(e).visibility === 'visible'",
            selector,
        )

    def keys(self, *keys):
        """Presses keys, wherever the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def set(self, selector, value):
        """Gives a control a value as a hand would: it changes, then it says so."""
        self.run(
            "const e = document.querySelector(arguments[0]);"
            "if (typeof arguments[1] === 'boolean') e.checked = arguments[1];"
            "else e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}))",
            selector,
            value,
        )
