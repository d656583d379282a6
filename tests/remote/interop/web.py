"""Checks with web servers: nginx with TLS, and Python's http.server, which has no ranges."""
from common import DIGITS, MIB, header_bytes, need, ok, skipped, write_safetensors
from servers import make_certificates, nginx, program, python_server

MAX_INSPECT_REQUESTS = 3
MAX_READ_TWICE = 1.02  # bytes that the server sends, relative to the file
OTHER_FORMATS = ["large.stele", "large.pth", "large.npz", "large.gguf", "large.zip"]


def check_ranges(stele, web, folder):
    for name in "large.safetensors", "small.safetensors":
        need(stele.total(f"{web.url}/{name}") == stele.total(folder / name), f"{name}: another hash over https")
        stele.need_equal(f"{web.url}/{name}", folder / name)
    ok("https: hash and diff equal to the local file")
    stele("convert", f"{web.url}/large.safetensors", folder / "copied.safetensors")
    stele("convert", folder / "large.safetensors", folder / "local.safetensors")
    need((folder / "copied.safetensors").read_bytes() == (folder / "local.safetensors").read_bytes(), "other bytes")
    stele("verify", f"{web.url}/large.safetensors")
    ok("https: convert to a local file, verify")


def cost(stele, web, *command):
    """Returns the requests of a command for a file, and the number of bytes that the server sent."""
    web.requests()
    stele(*command[:-1], f"{web.url}/{command[-1]}")
    asked = web.requests()
    return asked, sum(size for _, _, size, _, _ in asked)


def check_cost(stele, web, folder):
    """An inspect reads the index alone; a hash reads hardly more than the file."""
    write_safetensors(folder / "many.safetensors", 10_000, 4096)
    for name in "large.safetensors", "many.safetensors":
        asked, sent = cost(stele, web, "inspect", name)
        index = header_bytes(folder / name)
        need(len(asked) <= MAX_INSPECT_REQUESTS, f"inspect of {name}: {len(asked)} requests: {asked}")
        need(sent <= index + (128 << 10), f"inspect of {name}: {sent} bytes, the index has {index}: {asked}")
        ok(f"https: an inspect of 40 MB with an index of {index} bytes costs {len(asked)} requests and {sent} bytes")
    for name in OTHER_FORMATS:
        stele("convert", folder / "large.safetensors", folder / name)
        asked, sent = cost(stele, web, "inspect", name)
        need(sent <= MIB, f"inspect of {name}: {sent} bytes: {asked}")
        ok(f"https: an inspect of {name}, 40 MB, costs {len(asked)} requests and {sent} bytes")
        stele.need_equal(f"{web.url}/{name}", folder / name)
    ok(f"https: equal to the local file: {', '.join(OTHER_FORMATS)}")
    for name in "large.safetensors", "many.safetensors":
        asked, sent = cost(stele, web, "hash", name)
        size = (folder / name).stat().st_size
        need(sent <= MAX_READ_TWICE * size, f"hash of {name}: {sent} bytes for a file of {size}: {asked}")
        ok(f"https: a hash of {name}, 40 MB, costs {len(asked)} requests and {sent - size} bytes more than the file")


def check_certificate(stele, web):
    for url in web.url, web.url.replace("127.0.0.1", "localhost"):
        message = stele.refused("inspect", f"{url}/small.safetensors", says="certificate")
    ok(f"https: an unknown authority is refused ({message.split(': ', 3)[-1][:90]})")


def check_web_errors(stele, web):
    stele.refused("inspect", f"{web.url}/none.safetensors", says=["not_found", "404"])
    stele.refused("inspect", f"{web.url}/compressed/large.safetensors", says="compresses")
    stele.refused("convert", DIGITS, f"{web.url}/new.safetensors", says="unsupported")
    stele.refused("inspect", f"{web.url}/empty.safetensors")
    ok("https: a missing, a compressed and an empty file, and a save: errors")


def check_plain_http(stele):
    """Plain http is used on this machine alone; no name is looked up for a host that only looks like it."""
    for host in "example.invalid", "127.example.invalid", "localhost.example.invalid":
        stele.refused("inspect", f"http://{host}/x.safetensors", says="plain http is only used on this machine")
    ok("plain http to other hosts is refused")


def check_nginx(stele, work):
    if not program("nginx") or not program("openssl"):
        skipped("nginx: nginx or openssl is not installed")
        return
    folder = work / "web"
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "large.safetensors", 10, 4 * MIB)
    write_safetensors(folder / "small.safetensors", 3, 1024)
    (folder / "empty.safetensors").write_bytes(b"")
    authority, *certificate = make_certificates(work)
    with nginx(work, folder, certificate) as web:
        trusting = stele.with_variables(CURL_CA_BUNDLE=str(authority))
        check_ranges(trusting, web, folder)
        check_cost(trusting, web, folder)
        check_certificate(stele, web)
        check_web_errors(trusting, web)


def check_without_ranges(stele, work):
    folder = work / "plain"
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "small.safetensors", 3, MIB)
    write_safetensors(folder / "large.safetensors", 5, 4 * MIB)
    with python_server(folder) as url:
        stele.need_equal(f"{url}/small.safetensors", folder / "small.safetensors")
        ok("a server without ranges: a small file is read whole")
        message = stele.refused("inspect", f"{url}/large.safetensors", says=["unsupported", "ranges"])
    ok(f"a server without ranges: a large file is refused ({message[:110]})")


def check_web(stele, work):
    """Runs the checks of this file, those without nginx first."""
    check_without_ranges(stele, work)
    check_nginx(stele, work)
    check_plain_http(stele)
