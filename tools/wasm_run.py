#!/usr/bin/env python3
"""Runs a WebAssembly program that was compiled for WASI, with wasmtime: tools/wasm_run.py [--dir FOLDER]... PROGRAM.wasm [ARGUMENT...].

The program sees the working folder, the other FOLDERs by their absolute paths, and this process's environment and streams;
its exit status is that of this process, 134 after a trap. Its machine code is kept beside it, as PROGRAM.wasm.cache.
"""
import os
import sys
import tempfile

import wasmtime


def load(engine, path):
    """Returns the module in `path`, from its cache if that is newer."""
    cache = path + ".cache"
    if os.path.exists(cache) and os.stat(cache).st_mtime_ns > os.stat(path).st_mtime_ns:
        try:
            return wasmtime.Module.deserialize_file(engine, cache)
        except wasmtime.WasmtimeError:
            pass  # of another version of wasmtime
    module = wasmtime.Module.from_file(engine, path)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(path)), delete=False) as new:
        new.write(module.serialize())
    os.replace(new.name, cache)  # another process may read the cache now
    return module


def main():
    words = sys.argv[1:]
    folders = []
    while len(words) > 1 and words[0] == "--dir":
        folders.append(os.path.abspath(words[1]))
        del words[:2]
    if not words:
        sys.exit(__doc__.splitlines()[0])
    engine = wasmtime.Engine()
    wasi = wasmtime.WasiConfig()
    wasi.argv = words
    wasi.env = list(os.environ.items())
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    wasi.preopen_dir(".", ".")
    for folder in folders:
        wasi.preopen_dir(folder, folder)
    store = wasmtime.Store(engine)
    store.set_wasi(wasi)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    module = load(engine, words[0])
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)
    except wasmtime.ExitTrap as end:
        return end.code
    except (wasmtime.Trap, wasmtime.WasmtimeError) as trap:
        print(trap, file=sys.stderr)
        return 134
    return 0


if __name__ == "__main__":
    sys.exit(main())
