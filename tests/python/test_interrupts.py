"""Reads that report their progress, and that Ctrl+C ends."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run_python

import stele


def test_progress_of_reads_grows_and_cancels() -> None:
    file = stele.open(stele.save({str(i): np.ones(50_000) for i in range(10)}, format="stele", compress=True))
    calls: list[tuple[int, int]] = []
    file.numpy(progress=lambda done, total: calls.append((done, total)))
    assert [call[0] for call in calls] == sorted(call[0] for call in calls) and calls[-1] == (4_000_000, 4_000_000)
    with pytest.raises(stele.Error) as error:
        file.numpy(progress=lambda done, total: False)
    assert error.value.code == "cancelled"
    with pytest.raises(ZeroDivisionError):
        file["0"].read_into(np.empty(50_000), progress=lambda done, total: 1 // 0)


@pytest.mark.parametrize("work", ["file.numpy({})", "file['a'].numpy()", "file['a'].read_into(np.empty(4 << 20), {})"])
def test_ctrl_c_ends_a_long_read(work: str, tmp_path: Path) -> None:
    stele.save({"a": np.zeros(4 << 20)}, tmp_path / "a.stele", compress=True, durability="process")
    code = f"""
import sys, threading, time, numpy as np, signal, os, stele
file = stele.open(sys.argv[1])
def slow(done, total):
    time.sleep(0.2)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    while True:
        {work.format("progress=slow")}
except KeyboardInterrupt:
    assert time.monotonic() - start < 3
    print("interrupted")
"""
    assert run_python(code, str(tmp_path / "a.stele")).stdout == "interrupted\n"


class Stalls(http.server.BaseHTTPRequestHandler):
    """One file by ranges; a hub that lists without end. After `small` bytes, an answer stalls."""

    protocol_version = "HTTP/1.1"
    data = b""
    small = 1 << 20
    ended = threading.Event()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        begin, end = 0, len(self.data)
        if self.path.startswith("/api/"):
            self.send_response(200)
            self.send_header("Link", f'<{self.path.split("?")[0]}?cursor={os.urandom(8).hex()}>; rel="next"')
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")
            self.ended.wait(0.05)
            return
        if self.path != "/stalls":
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            begin, end = int(first), min(int(last) + 1, end)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(self.data)}")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.path == "/stalls" or begin > self.small and self.path != "/whole":
            self.ended.wait()
        self.wfile.write(self.data[begin:end])

    def do_PUT(self) -> None:
        self.ended.wait()

    do_POST = do_PUT


@pytest.mark.parametrize(
    "work",
    [
        "stele.open(f'{server}/stalls')",
        "stele.open(f'{server}/model')['big'].numpy()",
        "stele.open(f'{server}/model')['big'].stats()",
        "stele.open(f'{server}/model')['big'][1000:]",
        "stele.open('hf://o/m')",
        "stele.open('s3://bucket/dir/')",
        "CheckpointManager('s3://bucket/steps/').steps()",
        "stele.verify(f'{server}/stalls')",
        "stele.convert('s3://bucket/dir/', 'a.stele')",
        "stele.save({'a': np.ones(9)}, 's3://bucket/a.stele')",
        "CheckpointManager('s3://bucket/steps/').save(1, {'a': np.ones(9)})",
    ],
)
def test_ctrl_c_ends_requests(work: str) -> None:
    try:
        stele.open("http://127.0.0.1:1/x")
    except stele.Error as error:
        if error.code == "unsupported":
            pytest.skip("this build opens no URLs")
    data = stele.save({"small": np.zeros(1 << 19, np.float32), "big": np.ones(1 << 22, np.float32)}, format="stele")
    handler = type("Handler", (Stalls,), {"data": data, "ended": threading.Event()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        code = f"""
import os, signal, sys, threading, time, numpy as np, stele
from stele.checkpoints import CheckpointManager
server = sys.argv[1]
threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {work}
except KeyboardInterrupt:
    for _ in range(2):  # the interruption ended one call
        assert list(stele.open(f"{{server}}/whole")) == ["small", "big"]
        assert stele.open(stele.save({{"a": np.zeros(3)}}, format="stele"))["a"].stats()["zeros"] == 3
    print("interrupted")
"""
        environment = dict(os.environ, HF_ENDPOINT=url, AWS_ENDPOINT_URL=f"{url}/stalls", HF_HUB_CACHE="/nonexistent")
        environment |= {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
        # The stall of a connection alone would end it after 30 seconds, and six tries.
        try:
            assert run_python(code, url, timeout=60, env=environment).stdout == "interrupted\n"
        finally:
            handler.ended.set()
            server.shutdown()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_a_signal_ends_the_command_in_order(tmp_path: Path) -> None:
    """As that of the program: its exit status, and no file that is not whole."""
    stele.save({"a": np.zeros(32 << 20)}, tmp_path / "a.stele", durability="process")
    words = ["convert", str(tmp_path / "a.stele"), str(tmp_path / "b.json.zst")]
    process = subprocess.Popen([sys.executable, "-m", "stele", *words], stderr=subprocess.PIPE, text=True)
    while len(list(tmp_path.iterdir())) < 2 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, "stele: interrupted")
    assert [path.name for path in tmp_path.iterdir()] == ["a.stele"]
