// The installed npm package, against `stele`, the command: run.sh prepares a folder.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {test} from 'node:test';
import {pathToFileURL} from 'node:url';
import {SteleError, open} from 'stele';

const {STELE, STELE_ROOT, STELE_TEST_DATA: DATA} = process.env;
const digits = path.join(STELE_ROOT, 'examples/data/digits.safetensors');
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'stele-npm-'));
process.on('exit', () => fs.rmSync(scratch, {recursive: true}));

/** The document of the command, or {error}. */
function command(...words) {
  try {
    return JSON.parse(execFileSync(STELE, [...words, '--json'], {stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 30}));
  } catch (error) {
    return JSON.parse(error.stdout);
  }
}

/** A safetensors file of {name: [dtype, shape, bytes]}. */
function safetensors(name, tensors, metadata) {
  const header = metadata ? {__metadata__: metadata} : {}, parts = [];
  let offset = 0;
  for (const [key, [dtype, shape, bytes]] of Object.entries(tensors)) {
    header[key] = {dtype, shape, data_offsets: [offset, offset += bytes.byteLength]};
    parts.push(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  }
  const text = Buffer.from(JSON.stringify(header)), size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  const file = path.join(scratch, name);
  fs.writeFileSync(file, Buffer.concat([size, text, ...parts]));
  return file;
}

test('values of a file equal its bytes', async () => {
  const model = await open(digits);
  const content = fs.readFileSync(digits);
  const expected = command('inspect', digits);
  assert.equal(model.format, 'safetensors');
  assert.deepEqual(model.metadata, expected.metadata);
  for (const [i, t] of model.tensors.entries()) {
    const {name, dtype, shape, bytes, offset} = expected.tensors[i];
    assert.deepEqual({name: t.name, dtype: t.dtype, shape: t.shape, bytes: t.bytes}, {name, dtype, shape, bytes});
    const numbers = await t.read();
    assert.ok(numbers instanceof Float32Array);
    const stored = content.subarray(offset, offset + bytes);
    assert.deepEqual(Buffer.from(numbers.buffer), Buffer.from(stored));
    assert.deepEqual(await t.read({raw: true}), new Uint8Array(stored));
    assert.deepEqual(await t.read({start: 3, count: 5}), numbers.slice(3, 8));
    assert.deepEqual(await t.read({start: 3, count: 5, raw: true}), new Uint8Array(stored).slice(12, 32));
    assert.equal(model.tensor(name), t);
  }
  assert.equal(await model.hash(), command('hash', digits).files[0].digest);
  model.close();
  await assert.rejects(model.tensors[0].read(), /the model is closed/);
});

test('every golden file is what the command says', {timeout: 600_000}, async () => {
  const folders = ['gguf', 'numpy', 'pytorch', 'onnx', 'keras', 'safetensors'].map((format) => path.join(DATA, 'formats', format, 'data'));
  const files = folders.flatMap((folder) => fs.readdirSync(folder).sort().map((name) => path.join(folder, name)))
    .filter((file) => /\.(gguf|npy|npz|pt|pth|bin|onnx|keras|h5|hdf5|safetensors)$/.test(file) && fs.statSync(file).isFile());
  assert.ok(files.length > 50, `${files.length} files`);
  let opened = 0;
  for (const file of files) {
    const expected = command('inspect', file);
    let model;
    try {
      model = await open(file);
    } catch (error) {
      assert.ok(error instanceof SteleError, `${file}: ${error.stack}`);
      assert.ok(expected.error, `${file}: ${error.message}`);
      if (expected.error.message !== 'not a model file') assert.equal(error.code, expected.error.code, file);
      continue;
    }
    assert.equal(expected.error, undefined, file);
    ++opened;
    assert.equal(model.format, expected.format, file);
    assert.deepEqual(model.metadata, expected.metadata, file);
    assert.deepEqual(model.notes, expected.notes ?? [], file);
    const plain = ({name, dtype, shape, bytes, elements}) => ({name, dtype, shape, bytes, elements});
    assert.deepEqual(model.tensors.map(plain), expected.tensors.map(plain), file);
    const {digest, error} = command('hash', file).files?.[0] ?? {};
    if (digest) assert.equal(await model.hash(), digest, file);
    else await assert.rejects(model.hash(), SteleError, `${file}: ${JSON.stringify(error)}`);
    const stats = command('inspect', '--stats', file);
    if (!stats.error) {
      for (const [i, t] of model.tensors.entries()) {
        const {damaged, statistics} = await t.statistics();
        const wanted = stats.tensors[i].stats;
        if (damaged || !wanted) continue;
        for (const key of ['min', 'max', 'zeros', 'nan', 'inf']) assert.equal(statistics[key], wanted[key], `${file} ${t.name} ${key}`);
      }
    }
    model.close();
  }
  assert.ok(opened > 40, `${opened} opened`);
  console.log(`${opened} of ${files.length} files opened`);
});

test('dtypes become typed arrays', async () => {
  const file = safetensors('dtypes.safetensors', {
    f16: ['F16', [4], Uint16Array.of(0x3c00, 0xc000, 0x7c00, 0x0001)], bf16: ['BF16', [2], Uint16Array.of(0x3f80, 0xc020)],
    i64: ['I64', [2], BigInt64Array.of(-(2n ** 62n) - 1n, 5n)], u64: ['U64', [1], BigUint64Array.of(2n ** 64n - 1n)],
    f64: ['F64', [2], Float64Array.of(Math.PI, -0)], i8: ['I8', [3], Int8Array.of(-128, 0, 127)], u16: ['U16', [2], Uint16Array.of(65535, 1)],
    bool: ['BOOL', [3], Uint8Array.of(1, 0, 1)], i32: ['I32', [1], Int32Array.of(-7)], none: ['F32', [0, 3], new Float32Array()],
    scalar: ['F32', [], Float32Array.of(1.5)], e4m3: ['F8_E4M3', [2], Uint8Array.of(0x38, 0xb8)],
  });
  const model = await open(pathToFileURL(file));
  const read = async (name, options) => model.tensor(name).read(options);
  assert.deepEqual(await read('f16'), Float32Array.of(1, -2, Infinity, 2 ** -24));
  assert.deepEqual(await read('bf16'), Float32Array.of(1, -2.5));
  assert.deepEqual(await read('bf16', {raw: true, start: 1}), Uint8Array.of(0x20, 0xc0));
  assert.deepEqual(await read('i64'), BigInt64Array.of(-(2n ** 62n) - 1n, 5n));
  assert.deepEqual(await read('u64'), BigUint64Array.of(2n ** 64n - 1n));
  assert.deepEqual(await read('f64'), Float64Array.of(Math.PI, -0));
  assert.deepEqual(await read('i8', {start: 1}), Int8Array.of(0, 127));
  assert.deepEqual(await read('u16'), Uint16Array.of(65535, 1));
  assert.deepEqual(await read('bool'), Uint8Array.of(1, 0, 1));
  assert.deepEqual(await read('i32'), Int32Array.of(-7));
  assert.deepEqual(await read('none'), new Float32Array());
  assert.deepEqual(await read('scalar'), Float32Array.of(1.5));
  assert.deepEqual(await read('e4m3'), Float32Array.of(1, -1));
  await assert.rejects(read('i8', {start: 2, count: 2}), {code: 'out_of_range', path: 'i8'});
  const dispose = Symbol.dispose ?? Symbol.for('Symbol.dispose');
  model[dispose]();
});

test('blocks of GGUF equal those of the command', async () => {
  const gguf = path.join(scratch, 'q.gguf'), plain = path.join(scratch, 'plain.safetensors');
  execFileSync(STELE, ['convert', digits, gguf, '--precision', 'q8_0'], {stdio: 'ignore'});
  execFileSync(STELE, ['convert', gguf, plain, '--precision', 'f32'], {stdio: 'ignore'});
  const [model, decoded] = [await open(gguf), await open(plain)];
  assert.ok(model.tensors.some((t) => t.dtype === 'q8_0'));
  for (const t of model.tensors) {
    const numbers = await t.read();
    assert.deepEqual(numbers, await decoded.tensor(t.name).read());
    if (t.dtype === 'q8_0') assert.equal((await t.read({raw: true})).length, t.bytes);
    assert.deepEqual(await t.read({start: 1, count: 9}), numbers.slice(1, 10));
  }
});

test('bytes, files and folders', async () => {
  const content = fs.readFileSync(digits);
  for (const source of [content, new Uint8Array(content), new Uint8Array(content).buffer, new File([content], 'digits.safetensors')]) {
    const model = await open(source);
    assert.equal(model.tensors.length, 7);
    assert.equal((await model.tensors[0].read()).length, model.tensors[0].elements);
    model.close();
  }
  const folder = path.join(scratch, 'folder');
  execFileSync(STELE, ['convert', digits, folder, '--to', 'hub', '--shard', '8k'], {stdio: 'ignore'});
  const expected = command('inspect', folder);
  assert.ok(fs.readdirSync(folder).length > 2);
  const files = fs.readdirSync(folder).map((name) => new File([fs.readFileSync(path.join(folder, name))], name));
  const index = path.join(folder, 'model.safetensors.index.json');
  for (const source of [folder, index, files]) {
    const model = await open(source);
    assert.deepEqual(model.tensors.map((t) => t.name), expected.tensors.map((t) => t.name));
    assert.equal(await model.hash(), command('hash', digits).files[0].digest);
  }
});

test('errors have the text of the library', async () => {
  const broken = path.join(scratch, 'broken.safetensors');
  fs.writeFileSync(broken, fs.readFileSync(digits).subarray(0, 4000));
  const {error} = command('inspect', broken);
  await assert.rejects(open(broken), (found) => {
    assert.ok(found instanceof SteleError);
    assert.equal(found.code, error.code);
    assert.ok(found.message.includes(error.message) && found.message.includes('broken.safetensors'), found.message);
    return true;
  });
  await assert.rejects(open(path.join(scratch, 'none')), {code: 'ENOENT'});
  await assert.rejects(open(new Uint8Array()), SteleError);
  const damaged = path.join(scratch, 'damaged.stele');
  execFileSync(STELE, ['convert', digits, damaged], {stdio: 'ignore'});
  const {offset, name} = command('inspect', damaged).tensors[2];
  const bytes = fs.readFileSync(damaged);
  bytes[offset] ^= 1;
  const model = await open(bytes);
  await assert.rejects(model.tensor(name).read(), {code: 'checksum', path: name});
  assert.match((await model.tensor(name).statistics()).damaged, /checksum/);
});

test('a URL is read by ranges', async () => {
  const big = safetensors('big.safetensors', {big: ['U8', [30 << 20], new Uint8Array(30 << 20)], last: ['F32', [2], Float32Array.of(1, 2)]});
  const child = path.join(scratch, 'server.mjs');  // another process: the calls of this one wait
  fs.writeFileSync(child, `
    import fs from 'node:fs'; import http from 'node:http'; import path from 'node:path';
    let sent = 0;
    http.createServer((request, response) => {
      if (request.url === '/sent') return response.end(String(sent));
      const file = path.join(${JSON.stringify(scratch)}, request.url.slice(1)), range = /^bytes=(\\d+)-(\\d+)$/.exec(request.headers.range ?? '');
      if (!fs.existsSync(file)) { response.statusCode = 404; return response.end(); }
      const content = fs.readFileSync(file);
      if (!range || request.url.startsWith('/whole')) { sent += content.length; return response.end(content); }
      const part = content.subarray(Number(range[1]), Number(range[2]) + 1);
      sent += part.length;
      response.writeHead(206, {'content-range': \`bytes \${range[1]}-\${Number(range[1]) + part.length - 1}/\${content.length}\`});
      response.end(part);
    }).listen(0, '127.0.0.1', function () { console.log(this.address().port); });`);
  const {spawn} = await import('node:child_process');
  const server = spawn(process.execPath, [child], {stdio: ['ignore', 'pipe', 'inherit']});
  try {
    const port = await new Promise((done) => server.stdout.once('data', (text) => done(Number(text))));
    const base = `http://127.0.0.1:${port}/`;
    const model = await open(`${base}big.safetensors`);
    assert.deepEqual(await model.tensor('last').read(), Float32Array.of(1, 2));
    assert.ok(Number(await (await fetch(`${base}sent`)).text()) < 2 << 20);
    assert.equal(await model.hash(), command('hash', big).files[0].digest);
    fs.copyFileSync(digits, path.join(scratch, 'whole.safetensors'));
    await assert.rejects(open(`${base}whole.safetensors`), /without ranges/);
    await assert.rejects(open(`${base}none.safetensors`), {code: 'not_found'});
    await assert.rejects(open('http://127.0.0.1:1/x.safetensors'), /127\.0\.0\.1:1/);
  } finally {
    server.kill();
  }
});

test('a sparse file of 6 GB', async () => {
  const file = path.join(scratch, 'sparse.safetensors');
  const big = 6 * 2 ** 30;
  const header = Buffer.from(JSON.stringify({big: {dtype: 'F32', shape: [big / 4], data_offsets: [0, big]}, last: {dtype: 'F32', shape: [2], data_offsets: [big, big + 8]}}));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(header.length));
  const descriptor = fs.openSync(file, 'w');
  fs.writeSync(descriptor, Buffer.concat([size, header]));
  fs.writeSync(descriptor, Buffer.from(Float32Array.of(7, 8).buffer), 0, 8, 8 + header.length + big);
  fs.closeSync(descriptor);
  const began = performance.now();
  const model = await open(file);
  assert.ok(performance.now() - began < 1000);
  assert.deepEqual(await model.tensor('last').read(), Float32Array.of(7, 8));
  assert.deepEqual(await model.tensor('big').read({start: big / 4 - 2}), Float32Array.of(0, 0));
  model.close();
});
