// Runs stele.wasm: opens model files, of which only the bytes that are asked for are read. For a browser's worker and for
// Node. All functions except load() are synchronous, because the module reads files while it runs.

/** An error of the library. Has its parts: code, message, path, file, expected, found, hint, offset. `message` is the whole text. */
export class SteleError extends Error {
  constructor(text, parts = {}) {
    super(text);
    this.name = 'SteleError';
    for (const [key, value] of Object.entries(parts)) if (key !== 'message') this[key] = value;
  }
}

const arrays = {
  f64: Float64Array, c128: Float64Array, f32: Float32Array, c64: Float32Array, i64: BigInt64Array, u64: BigUint64Array,
  i32: Int32Array, u32: Uint32Array, i16: Int16Array, u16: Uint16Array, i8: Int8Array, u8: Uint8Array,
};

/**
 * The module with its memory.
 *
 * A group of files is {names, open}: open(name) returns {size, read(offset, target)}, which fills a Uint8Array or throws, or
 * null if there is no such file; `names` lists all files, or is null if only open() finds them. close(), if any, is called when
 * the model is closed.
 */
export class Engine {
  #exports;
  #groups = new Map();
  #files = new Map();
  #opened = 0;
  #group = 0;
  #error = '';
  #target = null;
  #filled = 0;
  /** Called with the number of bytes of tensors that were processed. */
  onadvance = null;

  /** @param {WebAssembly.Module | BufferSource | Response | Promise<Response>} source */
  static async load(source) {
    const waited = await source;
    const module = waited instanceof WebAssembly.Module ? waited
      : typeof Response !== 'undefined' && waited instanceof Response ? await WebAssembly.compile(await waited.arrayBuffer())
      : await WebAssembly.compile(waited);
    const engine = new Engine();
    const instance = await WebAssembly.instantiate(module, {stele: engine.#host(), wasi_snapshot_preview1: engine.#wasi(module)});
    engine.#exports = instance.exports;
    instance.exports._initialize?.();
    return engine;
  }

  /** Opens a file of a group, or, without a name, the group as a folder. */
  open(files, name = '') {
    const group = ++this.#group;
    this.#groups.set(group, files);
    const names = files.names === null ? [0, 0] : this.#put(files.names.map((n) => n + '\0').join(''));
    const text = this.#put(name);
    try {
      const number = this.#call('stele_open', group, ...names, ...text);
      return new Model(this, number, () => {
        this.#exports.stele_close(number);
        this.#forget(group);
      });
    } catch (error) {
      this.#forget(group);
      throw error;
    } finally {
      for (const [pointer] of [names, text]) this.#exports.stele_free(pointer);
    }
  }

  /** The differences of two models, as `stele diff --json` prints them. */
  diff(a, b) {
    this.#call('stele_diff', a.number, b.number);
    return this.#answer();
  }

  /** The bytes of the module's memory. */
  get memory() { return this.#exports.memory.buffer.byteLength; }

  // ---- for Model

  ask(name, ...values) {
    this.#call(name, ...values);
    return this.#answer();
  }

  read(target, ...values) {
    this.#target = target;
    this.#filled = 0;
    try {
      this.#call('stele_read', ...values);
    } finally {
      this.#target = null;
    }
    return this.#filled;
  }

  // ---- calls

  #forget(group) {
    this.#groups.get(group)?.close?.();
    this.#groups.delete(group);
    for (const [number, file] of this.#files) if (file.group === group) this.#files.delete(number);
  }

  #put(text) {
    const bytes = new TextEncoder().encode(text);
    const pointer = this.#exports.stele_alloc(bytes.length + 1);
    if (pointer === 0) throw new SteleError('out of memory', {code: 'out_of_memory'});
    this.#bytes(pointer, bytes.length).set(bytes);
    return [pointer, bytes.length];
  }

  /** A part of the memory; the module's numbers of 32 bits have signs in JavaScript. */
  #bytes(pointer, size) { return new Uint8Array(this.#exports.memory.buffer, pointer >>> 0, size >>> 0); }

  #text(pointer, size) { return new TextDecoder('utf-8', {ignoreBOM: true}).decode(this.#bytes(pointer, size)); }

  #answer() {
    return JSON.parse(this.#text(this.#exports.stele_answer(), this.#exports.stele_answer_size()));
  }

  #call(name, ...values) {
    let result;
    try {
      result = this.#exports[name](...values);
    } catch (error) {
      if (error instanceof WebAssembly.RuntimeError) throw new SteleError(this.#output.trim() || 'out of memory', {code: 'out_of_memory'});
      throw error;
    }
    if (result !== 0) return result;
    const {text, error} = this.#answer();
    throw new SteleError(text, error);
  }

  // ---- what the module imports

  #fail(error) {
    this.#error = error instanceof Error ? error.message : String(error);
    return -2;
  }

  #host() {
    return {
      open: (group, pointer, size) => {
        try {
          const file = this.#groups.get(group).open(this.#text(pointer, size));
          if (file === null) return -1;
          this.#files.set(++this.#opened, {group, file});
          return this.#opened;
        } catch (error) {
          return this.#fail(error);
        }
      },
      size: (file) => BigInt(this.#files.get(file).file.size),
      read: (file, offset, size, pointer) => {
        try {
          this.#files.get(file).file.read(Number(offset), this.#bytes(pointer, size));
          return 0;
        } catch (error) {
          return this.#fail(error);
        }
      },
      error: (pointer, size) => new TextEncoder().encodeInto(this.#error, this.#bytes(pointer, size)).written,
      piece: (pointer, size) => {
        this.#target.set(this.#bytes(pointer, size), this.#filled);
        this.#filled += size >>> 0;
      },
      advance: (bytes) => this.onadvance?.(Number(bytes)),
    };
  }

  #output = '';
  // The module uses no file of WASI; a call that it does not need is an error (ENOSYS).
  #wasi(module) {
    const view = () => new DataView(this.#exports.memory.buffer);
    const calls = {
      fd_write: (file, vectors, count, written) => {
        let total = 0;
        for (let i = 0; i < count; ++i) {
          const pointer = view().getUint32(vectors + 8 * i, true), size = view().getUint32(vectors + 8 * i + 4, true);
          this.#output = (this.#output + this.#text(pointer, size)).slice(-4096);
          total += size;
        }
        view().setUint32(written, total, true);
        return 0;
      },
      clock_time_get: (clock, precision, out) => {
        view().setBigUint64(out, BigInt(Date.now()) * 1000000n, true);
        return 0;
      },
      random_get: (pointer, size) => {
        globalThis.crypto.getRandomValues(this.#bytes(pointer, size));
        return 0;
      },
      proc_exit: () => { throw new WebAssembly.RuntimeError('exit'); },
      environ_sizes_get: (count, size) => {
        view().setUint32(count, 0, true);
        view().setUint32(size, 0, true);
        return 0;
      },
      environ_get: () => 0,
      fd_prestat_get: () => 8,  // EBADF: no folders
    };
    const imports = {};
    for (const {module: from, name} of WebAssembly.Module.imports(module)) {
      if (from === 'wasi_snapshot_preview1') imports[name] = calls[name] ?? (() => 52);
    }
    return imports;
  }
}

/** An open model. */
export class Model {
  #engine;
  constructor(engine, number, close) {
    this.#engine = engine;
    this.number = number;
    /** Frees the model's memory, and closes its files. */
    this.close = close;
  }
  /** What `stele inspect --json` prints of the model: format, metadata, notes, tensors, totals. */
  describe() { return this.#engine.ask('stele_describe', this.number); }
  /** {count, statistics: {min, max, mean, std, norm, zeros, nan, inf}, histogram}, or {damaged: text}. */
  statistics(tensor, histogram = true) { return this.#engine.ask('stele_statistics', this.number, tensor, histogram ? 1 : 0); }
  /** The digest that `stele hash` prints. */
  hash() { return this.#engine.ask('stele_hash', this.number).digest; }
  /**
   * Reads `count` elements of a tensor, of `elements` in all and `bytes`: as they are stored in the machine's order (`raw`, a
   * Uint8Array), or as numbers. Floats of fewer than 32 bits and quantized blocks become a Float32Array; a complex number is two.
   */
  read(tensor, {elements, bytes}, {raw = false, start = 0, count = elements - start} = {}) {
    const range = [BigInt(start), BigInt(Math.max(count, 0))];
    if (raw) {
      const target = new Uint8Array(count === elements ? bytes : Math.ceil(bytes / elements * count));
      const filled = this.#engine.read(target, this.number, tensor, 1, ...range);
      return filled === target.length ? target : target.subarray(0, filled);
    }
    const {dtype} = this.#engine.ask('stele_delivered', this.number, tensor);
    const Kind = arrays[dtype] ?? Uint8Array;
    const target = new Kind(Math.max(count, 0) * (dtype === 'c64' || dtype === 'c128' ? 2 : 1));
    this.#engine.read(new Uint8Array(target.buffer), this.number, tensor, 0, ...range);
    return target;
  }
}

// ---- groups of files

/** A group of one file, which knows no other. */
export const single = (name, file) => ({names: [name], open: (wanted) => wanted === name ? file : null});
/** A group of a Map of names and files. */
export const several = (files) => ({names: Array.from(files.keys()), open: (name) => files.get(name) ?? null});

export function bytesFile(bytes) {
  return {
    size: bytes.length,
    read(offset, target) { target.set(bytes.subarray(offset, offset + target.length)); },
  };
}

/** A File or Blob, in a worker. */
export function blobFile(blob) {
  const reader = new FileReaderSync();
  return {
    size: blob.size,
    read(offset, target) {
      let buffer;
      try {
        buffer = reader.readAsArrayBuffer(blob.slice(offset, offset + target.length));
      } catch (error) {
        throw new Error(`the browser cannot read the file, which may have changed (${error.name})`);
      }
      if (buffer.byteLength !== target.length) throw new Error('the file has become shorter');
      target.set(new Uint8Array(buffer));
    },
  };
}

/**
 * A URL whose server answers requests of ranges. `request(url, first, last)` returns {status, range, bytes}, where `range` is
 * the header Content-Range, or throws; null if the file does not exist. Of files that are only looked for (`optional`), a
 * refused one does not exist: a signature is for one file.
 */
export function urlFile(url, request, optional = false) {
  const ahead = 4 << 20;
  const ranged = (first, last) => {
    const {status, range, bytes} = request(url, first, last);
    if (status === 404 || status === 410 || (optional && (status === 401 || status === 403))) return null;
    if (status === 416) return {first, total: 0, bytes: new Uint8Array()};
    if (status === 200) throw new Error(`the server sends only whole files, without ranges: ${url}`);
    if (status !== 206) throw new Error(`the server answers with status ${status}: ${url}`);
    const parts = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(range ?? '');
    if (!parts) throw new Error(`the server does not tell the size of the file to other pages (Content-Range): ${url}`);
    if (Number(parts[1]) !== first || bytes.length !== Number(parts[2]) - first + 1) throw new Error(`the server sent another range: ${url}`);
    return {first, total: Number(parts[3]), bytes};
  };
  let kept = ranged(0, (256 << 10) - 1);  // the first block of the module
  if (kept === null) return null;
  const size = kept.total;
  let next = -1;
  return {
    size,
    read(offset, target) {
      const end = offset + target.length;
      if (offset < kept.first || end > kept.first + kept.bytes.length) {
        const wanted = offset === next ? Math.max(end, offset + ahead) : end;  // read ahead if the reads are in order
        const last = Math.min(wanted, size) - 1;
        const got = ranged(offset, last);
        if (got === null || got.total !== size || got.bytes.length < target.length) throw new Error(`the file has changed: ${url}`);
        kept = got;
      }
      target.set(kept.bytes.subarray(offset - kept.first, end - kept.first));
      next = end;
    },
  };
}

/** A synchronous request of a worker. */
export function requestByXhr(url, first, last) {
  const xhr = new XMLHttpRequest();
  xhr.open('GET', url, false);
  xhr.responseType = 'arraybuffer';
  xhr.setRequestHeader('Range', `bytes=${first}-${last}`);
  try {
    xhr.send();
  } catch {
    throw new Error(`no answer: the server cannot be reached, or does not allow other pages to read this file (CORS): ${url}`);
  }
  return {status: xhr.status, range: xhr.getResponseHeader('Content-Range'), bytes: new Uint8Array(xhr.response ?? new ArrayBuffer(0))};
}

/** The group of a URL: other files, as an index names them, are looked for beside it. Returns [group, name]. */
export function urlGroup(url, request) {
  const whole = new URL(url);
  const slash = whole.pathname.lastIndexOf('/');
  const name = decodeURIComponent(whole.pathname.slice(slash + 1)) || 'model';
  const files = new Map();
  const open = (wanted) => {
    if (!files.has(wanted)) {
      const beside = new URL(whole);
      if (wanted !== name) beside.pathname = whole.pathname.slice(0, slash + 1) + wanted.split('/').map(encodeURIComponent).join('/');
      files.set(wanted, urlFile(beside.href, request, wanted !== name));
    }
    return files.get(wanted);
  };
  return [{names: null, open}, name];
}
