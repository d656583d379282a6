"""A headless Chromium, driven by the DevTools protocol over a pipe, and a server of files with ranges. No dependencies."""

import base64
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page."""

    def __init__(self, profile):
        to_browser, own_out = os.pipe()
        own_in, from_browser = os.pipe()
        command = [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]

        def descriptors():  # the protocol is on 3 and 4
            read, write = os.dup(to_browser), os.dup(from_browser)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(command, preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.out, self.input, self.number, self.events, self.buffer = own_out, own_in, 0, [], b""
        self.session = None
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "DOM", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        finally:
            self.process.wait(timeout=60)
            os.close(self.out)
            os.close(self.input)

    def receive(self):
        while b"\0" not in self.buffer:
            some = os.read(self.input, 1 << 20)
            if not some:
                raise RuntimeError("Chromium has ended")
            self.buffer += some
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.out, text):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, expression):
        """Return the value of an expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def wait(self, condition, seconds=60):
        """Wait until an expression is true; return the seconds."""
        began = time.monotonic()
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"{condition}\n{self.evaluate('document.body.innerText')[:2000]}\n{self.messages()}")
            time.sleep(0.02)
        return time.monotonic() - began

    def go(self, url):
        self.events.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def choose(self, selector, files):
        """Choose files, or the folder of a webkitdirectory, in an input element."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def look(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def messages(self):
        """Return errors of scripts, and of the content security policy."""
        found = [e["params"]["exceptionDetails"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        entries = [e["params"]["entry"] for e in self.events if e.get("method") == "Log.entryAdded"]
        return [json.dumps(f)[:500] for f in found] + [e["text"] for e in entries if e["level"] == "error" and e["source"] != "network"]


class Server:
    """Serves folders below /NAME/, with ranges, at the loopback address; counts the bytes of each path."""

    def __init__(self, folders, ranges=True):
        server = self
        self.sent = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                name, _, rest = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
                file = folders.get(name, Path("/nonexistent")) / (rest or "index.html")
                if not file.is_file():
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                size, first, last = file.stat().st_size, 0, file.stat().st_size - 1
                wanted = self.headers.get("Range") if server.ranges else None
                if wanted:
                    begin, end = wanted.removeprefix("bytes=").split("-")
                    first, last = int(begin), min(int(end or last), last)
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                else:
                    self.send_response(200)
                self.send_header("Content-Type", {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}.get(file.suffix, "application/octet-stream"))
                self.send_header("Content-Length", str(last - first + 1))
                self.end_headers()
                with open(file, "rb") as content:
                    content.seek(first)
                    try:
                        self.wfile.write(content.read(last - first + 1))
                    except ConnectionError:
                        return
                server.sent[rest] = server.sent.get(rest, 0) + last - first + 1

        self.ranges = ranges
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
