"""The servers of the checks: moto, versitygw, nginx and Python's http.server."""
import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading

import boto3
from botocore.config import Config

from common import KEYS, Failure, free_port, need, program, server

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


def client_of(endpoint, secret=KEYS["secret"], region=KEYS["region"]):
    """Returns boto3's client for a store."""
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=KEYS["access"], aws_secret_access_key=secret,
                        region_name=region,
                        config=Config(signature_version="s3v4", retries={"max_attempts": 10, "mode": "standard"}))


def variables_of(endpoint, secret=KEYS["secret"]):
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": KEYS["access"], "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": KEYS["region"]}


@contextlib.contextmanager
def moto(work, port=None):
    """Runs moto's server. Yields the endpoint and the process."""
    port = port or free_port()
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
    with server(words, port, work / "moto.log") as process:
        yield f"http://127.0.0.1:{port}", process


def install_versitygw(work):
    """Returns the program, or None if there is no compiler for it or the build fails."""
    found = program("versitygw") or program(str(work / "go/bin/versitygw"))
    go = program("go")
    if found or not go:
        return found
    environment = os.environ | {"GOBIN": str(work / "go/bin"), "GOCACHE": str(work / "go/cache"), "GOFLAGS": "-p=1"}
    with open(work / "versitygw-build.log", "wb") as log:
        subprocess.run([go, "install", VERSITYGW], env=environment, stdout=log, stderr=log)
    return program(str(work / "go/bin/versitygw"))


@contextlib.contextmanager
def versitygw(path, work, region=KEYS["region"]):
    """Runs versitygw over a folder. Yields the endpoint."""
    port, folder = free_port(), work / "versitygw"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = [path, "--access", KEYS["access"], "--secret", KEYS["secret"], "--region", region, "--port",
             f"127.0.0.1:{port}", "posix", folder]
    with server(words, port, work / "versitygw.log"):
        yield f"http://127.0.0.1:{port}"


# ---------------------------------------------------------------- web servers

NGINX = """\
daemon off;
worker_processes {workers};
{user}
pid {work}/nginx.pid;
error_log {work}/nginx-error.log;
events {{ worker_connections 512; }}
http {{
  log_format requests '$request_method $status $body_bytes_sent $uri $http_range';
  access_log {access};
  {temporary}
  sendfile on;
  keepalive_requests 100000;
  gzip off;
  server {{
    listen 127.0.0.1:{port};
    {tls}
    root {folder};
    location /compressed/ {{ alias {folder}/; add_header Content-Encoding gzip; }}
  }}
}}
"""


class Nginx:
    def __init__(self, url, log):
        self.url, self.log = url, log

    def requests(self):
        """Returns (method, status, body bytes, path, range) of the requests since the last call."""
        lines = [line.split(" ", 4) for line in self.log.read_text().splitlines()]
        os.truncate(self.log, 0)
        return [(method, int(status), int(size), path, bytes_) for method, status, size, path, bytes_ in lines]


@contextlib.contextmanager
def nginx(work, folder, certificate=None, workers=1, logged=True):
    """Runs nginx over a folder. `certificate`: of https, as (certificate, key)."""
    port, log = free_port(), work / "nginx-access.log"
    log.write_text("")
    kinds = "client_body", "proxy", "fastcgi", "uwsgi", "scgi"
    text = NGINX.format(
        work=work, folder=folder, workers=workers, user="user root;" if os.geteuid() == 0 else "",
        access=f"{log} requests" if logged else "off",
        temporary="\n  ".join(f"{kind}_temp_path {work}/nginx-{kind};" for kind in kinds),
        port=f"{port} ssl" if certificate else port,
        tls="ssl_certificate {}; ssl_certificate_key {};".format(*certificate) if certificate else "")
    config = work / "nginx.conf"
    config.write_text(text)
    words = [program("nginx"), "-c", config, "-e", work / "nginx-error.log"]
    with server(words, port, work / "nginx.log"):
        yield Nginx(f"http{'s' if certificate else ''}://127.0.0.1:{port}", log)


def make_certificates(work):
    """Makes a certificate authority and its certificate for this machine. Returns (authority, certificate, key)."""
    ca, ca_key, certificate, key = (work / name for name in ("ca.pem", "ca.key", "server.pem", "server.key"))
    make = [program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "30"]
    for words in (
            ["-keyout", ca_key, "-out", ca, "-subj", "/CN=interop CA"],
            ["-CA", ca, "-CAkey", ca_key, "-keyout", key, "-out", certificate, "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]):
        done = subprocess.run([*make, *map(str, words)], capture_output=True, text=True)
        need(done.returncode == 0, f"openssl: {done.stderr}")
    return ca, certificate, key


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *arguments):
        """Prints nothing: the command closes connections whose answer it refuses."""


@contextlib.contextmanager
def python_server(folder):
    """Runs Python's http.server, which has no ranges. Yields its URL."""
    with QuietServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as web:
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_address[1]}"
        finally:
            web.shutdown()
            thread.join()


def make_bucket(s3, bucket):
    try:
        s3.create_bucket(Bucket=bucket)
    except s3.exceptions.BucketAlreadyOwnedByYou:
        pass
    except s3.exceptions.ClientError as error:
        raise Failure(f"boto3 cannot create the bucket: {error}") from None
