"""The command and URLs: stores and hubs on this machine."""

import http.server
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import runs_test
from support import STELE, run, safetensors, succeed


class Handler(http.server.BaseHTTPRequestHandler):
    """A store with the protocol of S3, and a hub whose lists do not end."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # 40 ms for each answer

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        server = self.server
        url = urllib.parse.urlsplit(self.path)
        path, query = urllib.parse.unquote(url.path), dict(urllib.parse.parse_qsl(url.query))
        server.log.append(self.path)
        if path.startswith("/api/"):
            page = str(len(server.log))
            return self.answer(200, b"[]", Link=f'<{url.path}?cursor={page}>; rel="next"')
        if "list-type" in query:
            prefix = path + query.get("prefix", "")
            keys = [key[len(path):] for key in sorted(server.objects) if key.startswith(prefix)]
            rows = "".join(f"<Contents><Key>{key}</Key></Contents>" for key in keys[:int(query.get("max-keys", 1000))])
            return self.answer(200, f"<R><IsTruncated>false</IsTruncated>{rows}</R>".encode())
        if "file" in query:
            path = "/bucket/" + query["file"]
        if path not in server.objects:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        data = server.objects[path]
        begin, end = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", f"bytes=0-{len(data)}")).groups()
        begin, end = int(begin), min(int(end), len(data) - 1)
        tag = f'"{hash(data)}"'
        if "Range" not in self.headers:
            return self.answer(200, data, ETag=tag)
        self.answer(206, data[begin : end + 1], ETag=tag, Content_Range=f"bytes {begin}-{end}/{len(data)}")

    do_HEAD = do_GET

    def do_PUT(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.server.objects[path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, ETag='"1"')


class Server:
    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.objects = self.server.objects = {}
        self.log = self.server.log = []
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.environment = {"AWS_ENDPOINT_URL": self.url, "HF_ENDPOINT": self.url, "PATH": os.environ["PATH"]}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def has_remote():
    status, _, err = run("inspect", "http://127.0.0.1:1/x", env={})
    return b"opens no URLs" not in err


@unittest.skipUnless(has_remote(), "left out: this build opens no URLs")
class RemoteTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.server = self.enterContext(Server())
        self.environment = self.server.environment

    def stele(self, *arguments):
        return run(*arguments, env=self.environment)

    def put(self, key, path):
        self.server.objects["/bucket/" + key] = path.read_bytes()

    def model(self, name, value):
        path = self.folder / name
        data = bytes([value]) * 64
        plain = safetensors(self.folder / "plain.safetensors", {"a.weight": ("F32", [4, 2], data[:32]), "b": ("F32", [8], data[:32])})
        succeed("convert", plain, path)
        return path

    def test_no_command_replaces_an_object_that_it_reads(self):
        """Each command × each URL of the object × a store; the same as for files on this machine."""
        names = ["old.stele", "new.stele", "newer.stele"]
        for value, name in enumerate(names):
            self.put(name, self.model(name, value))
        for name, old, new in (("d.stele", *names[:2]), ("e.stele", *names[1:])):
            succeed("delta", self.folder / old, self.folder / new, "-o", self.folder / name)
            self.put(name, self.folder / name)
        lora = {"base_model.model.a.lora_A.weight": ("F32", [1, 2], b"\1" * 8),
                "base_model.model.a.lora_B.weight": ("F32", [4, 1], b"\1" * 16)}
        (self.folder / "adapter").mkdir()
        safetensors(self.folder / "adapter/adapter_model.safetensors", lora)
        (self.folder / "adapter/adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["a"]}))
        read = {"old": "old.stele", "new": "new.stele", "d": "d.stele", "e": "e.stele"}
        commands = [
            (["extract", "{old}", "b", "-o"], ["old"]),
            (["convert", "{old}", "--precision", "f16"], ["old"]),
            (["convert", "{old}", "--part", "b"], ["old"]),
            (["delta", "{old}", "{new}", "-o"], ["old", "new"]),
            (["apply", "{old}", "{d}", "-o"], ["old", "d"]),
            (["merge", "--overlay", "{old}", "{new}", "-o"], ["old", "new"]),
            (["compact", "{d}", "{e}", "-o"], ["d", "e"]),
            (["lora", "merge", "{old}", "ADAPTER", "-o"], ["old"]),
            (["repair", "{old}"], ["old"]),
            (["report", "{old}", "{new}", "-o"], ["old", "new"]),
            (["embed", "{old}", "-o"], ["old"]),
        ]
        forms = {
            "the same": "s3://bucket/{0}",
            "its address": self.server.url + "/bucket/{0}",
            "another name of this machine": self.server.url.replace("127.0.0.1", "localhost") + "/bucket/{0}?signature=1",
            "percent-encoding": self.server.url + "/bucket/{1}",
        }
        before = dict(self.server.objects)
        files = {path: path.read_bytes() for path in self.folder.glob("*.stele")}
        for words, outputs in commands:
            for output in outputs:
                local = [w.format(**{k: self.folder / v for k, v in read.items()}).replace("ADAPTER", str(self.folder / "adapter"))
                         for w in words]
                status, _, err = self.stele(*local, self.folder / read[output])
                self.assertEqual(status, 2, (local, err))
                for form, url in forms.items():
                    encoded = "".join(f"%{ord(c):02X}" for c in read[output])
                    urls = {k: url.format(v, encoded if k == output else v) for k, v in read.items()}
                    remote = [w.format(**urls).replace("ADAPTER", str(self.folder / "adapter")) for w in words]
                    with self.subTest(words=words[0], output=output, form=form):
                        status, _, err = self.stele(*remote, "s3://bucket/" + read[output])
                        self.assertEqual(status, 2, err)
                        self.assertIn(b"replace", err)
                        self.assertEqual(self.server.objects, before)
        self.assertEqual({path: path.read_bytes() for path in self.folder.glob("*.stele")}, files)

    def test_other_objects_are_written(self):
        self.put("old.stele", self.model("old.stele", 1))
        for source in ("s3://bucket/old.stele", self.server.url + "/bucket/old.stele"):
            for target in ("s3://bucket/Old.stele", "s3://bucket/dir/old.stele", "s3://other/old.stele", "s3://bucket/ol%64.stele"):
                with self.subTest(source=source, target=target):
                    status, _, err = self.stele("extract", source, "b", "-o", target)
                    self.assertEqual(status, 0, err)
        # A rewrite of all of a model may replace it, as on this machine.
        status, _, err = self.stele("convert", "s3://bucket/old.stele", "s3://bucket/old.stele")
        self.assertEqual(status, 0, err)

    def test_runs_in_a_store(self):
        """Runs and steps, whole and as deltas × the commands."""
        runs = runs_test.Runs("test_damage")
        runs.setUp()
        self.addCleanup(runs.doCleanups)
        for file in Path(runs.folder.name).rglob("*"):
            if file.is_file():
                self.put(str(file.relative_to(runs.folder.name)), file)
        forms = [("whole", 3), ("whole/step-00000001/", 1), ("deltas/", 3), ("deltas/step-00000003", 3)]
        out = self.folder / "out.stele"
        objects = dict(self.server.objects)
        for path, number in forms:
            url, same = "s3://bucket/" + path, runs.models[number]
            base = "s3://bucket/deltas/step-00000002/parameters.stele"
            for status, words in (
                    (0, ["inspect", url]), (0, ["verify", url]), (0, ["diff", url, same]), (0, ["convert", url, out]),
                    (0, ["diff", out, same]), (0, ["repair", url, self.folder / "r.stele"]),
                    (0, ["extract", url, "w", "-o", self.folder / "w.npy"]), (0, ["embed", url, "-o", self.folder / "e.hpp"]),
                    (0, ["delta", same, url, "-o", self.folder / "d.stele"]), (2, ["compact", url, url, "-o", out]),
                    (2, ["apply", url, self.folder / "d.stele", "--in-place"]), (2, ["convert", same, url, "--to", "hub"]),
                    (2 if path.startswith("deltas") else 0, ["convert", url, base])):
                with self.subTest(words=words):
                    found, _, err = self.stele(*words)
                    self.assertEqual(found, status, err.decode())
                    if status == 2:
                        self.assertEqual(self.server.objects, objects)
                    self.server.objects.clear()
                    self.server.objects.update(objects)

    def test_an_endless_list_ends(self):
        status, _, err = self.stele("inspect", "hf://o/m")
        self.assertEqual(status, 2)
        self.assertIn(b"list does not end", err)
        self.assertLess(len(self.server.log), 1100)

    @unittest.skipIf(os.name == "nt", "signals")
    def test_the_first_signal_ends_a_list(self):
        for kind in (signal.SIGTERM, signal.SIGINT):
            before = len(self.server.log)
            slow = threading.Event()
            child = subprocess.Popen([STELE, "inspect", "hf://o/m"], env=self.environment, stderr=subprocess.PIPE)
            while len(self.server.log) < before + 3 and child.poll() is None:
                slow.wait(0.01)
            child.send_signal(kind)
            _, err = child.communicate(timeout=60)
            self.assertIn(child.returncode, (2, 130), err)
            self.assertLess(len(self.server.log) - before, 1000)

    def test_a_hub_that_cannot_be_reached_is_named(self):
        environment = dict(self.environment, HF_ENDPOINT="http://127.0.0.1:1", AWS_ENDPOINT_URL="http://127.0.0.1:1")
        begin = time.monotonic()
        with ThreadPoolExecutor() as pool:
            for status, _, err in pool.map(lambda url: run("inspect", url, env=environment, timeout=120), ("hf://o/m", "s3://bucket/dir/")):
                self.assertEqual(status, 2)
                self.assertIn(b"the request failed", err)
                self.assertNotIn(b"not a model", err)
        self.assertLess(time.monotonic() - begin, 60)

    def test_the_query_of_a_url_is_a_part_of_it(self):
        """Every opening of a model reads the same file, with and without a cache."""
        paths = [self.model("one.pt", 1), self.model("two.pt", 2)]
        for path in paths:
            self.put(path.name, path)
        for cache in ({}, {"STELE_CACHE": str(self.folder / "cache")}):
            environment = dict(self.environment, **cache)
            for path in paths + paths:
                url = f"{self.server.url}/get?file={path.name}"
                for words in (["convert"], ["convert", "--checkpoint"]):
                    out = self.folder / "out.pt"
                    status, _, err = run(words[0], url, out, *words[1:], env=environment)
                    self.assertEqual(status, 0, err)
                    self.assertEqual(succeed("hash", "--total", out).split()[0], succeed("hash", "--total", path).split()[0])
                status, out, _ = run("inspect", url, env=environment)
                self.assertEqual(status, 0)
                self.assertNotIn(b"file=", out)


if __name__ == "__main__":
    unittest.main()
