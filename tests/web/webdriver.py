"""A browser under remote control: chromedriver's WebDriver protocol over plain HTTP.

Deliberately only what web_test.py needs, and nothing that waits without a condition.
"""
import base64
import http.client
import json
import os
import pathlib
import subprocess
import tempfile
import time

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # of the protocol (W3C WebDriver, 11)
WAIT_S = 60


class WebDriverError(Exception):
    pass


def poll(condition, what):
    """The first true value of `condition`, asked again and again for at most WAIT_S."""
    end = time.monotonic() + WAIT_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {WAIT_S} s still not: {what}")
        time.sleep(0.02)  # between two looks, not for something to happen


class Browser:
    """One headless window with a profile of its own. It reaches no host but 127.0.0.1."""

    def __init__(self, chromium, chromedriver, width=1280, height=860, dark=False):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        log = pathlib.Path(self.profile.name) / "driver.log"
        self.output = open(log, "w+")
        self.driver = subprocess.Popen([chromedriver, "--port=0"], stdout=self.output,
                                       stderr=subprocess.STDOUT)
        self.session = None
        try:
            self.port = poll(lambda: self._port(log), "chromedriver names its port")
            self.session = self._open(chromium, width, height, dark)
        except BaseException:
            self.close()
            raise

    def _port(self, log):
        text = log.read_text()
        if self.driver.poll() is not None:
            raise WebDriverError(f"chromedriver ended: {text}")
        marker = "started successfully on port "
        return int(text.split(marker)[1].split(".")[0]) if marker in text else None

    def _open(self, chromium, width, height, dark):
        args = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-default-apps", "--hide-scrollbars", f"--window-size={width},{height}",
                f"--user-data-dir={self.profile.name}/profile",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        if os.geteuid() == 0:
            args.append("--no-sandbox")  # which root cannot have
        if dark:
            args.append("--blink-settings=preferredColorScheme=0")
        # An offer to keep a password is a window of its own, which takes the keyboard.
        preferences = {"credentials_enable_service": False,
                       "profile.password_manager_enabled": False}
        options = {"binary": chromium, "args": args, "prefs": preferences}
        logs = {"browser": "ALL", "performance": "ALL"}
        capabilities = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options,
                                        "goog:loggingPrefs": logs}}
        return self._call("POST", "/session", {"capabilities": capabilities})["sessionId"]

    def close(self):
        if self.session is not None:
            self._call("DELETE", f"/session/{self.session}")
            self.session = None
        self.driver.terminate()
        self.driver.wait()
        self.output.close()
        self.profile.cleanup()

    def _call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2 * WAIT_S)
        try:
            text = None if method != "POST" else json.dumps(body or {})
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise WebDriverError(f"{answer['error']}: {answer['message']}")
        return answer

    def _do(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def go(self, url):
        self._do("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The value that the script returns; a promise is waited for."""
        return self._do("POST", "/execute/sync", {"script": script, "args": list(args)})

    def all(self, selector):
        found = self._do("POST", "/elements", {"using": "css selector", "value": selector})
        return [element[ELEMENT] for element in found]

    def one(self, selector):
        return poll(lambda: self.all(selector), f"there is {selector}")[0]

    def count(self, selector):
        return len(self.all(selector))

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def click(self, selector):
        self._do("POST", f"/element/{self.one(selector)}/click")

    def type(self, selector, text):
        self._do("POST", f"/element/{self.one(selector)}/value", {"text": text})

    def clear(self, selector):
        self._do("POST", f"/element/{self.one(selector)}/clear")

    def key(self, key):
        """A key, to whatever has the focus."""
        press = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._do("POST", "/actions",
                 {"actions": [{"type": "key", "id": "keyboard", "actions": press}]})

    def until(self, script, what, *args):
        return poll(lambda: self.run(script, *args), what)

    def console(self):
        """What the console said since the last call."""
        return self._do("POST", "/se/log", {"type": "browser"})

    def requested_urls(self):
        """What the page has asked the network for since the last call."""
        urls = []
        for entry in self._do("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self._do("GET", "/screenshot")))
