// stele for Node. Reads files while a call runs; ranges of URLs are fetched by a thread, for which the call waits.
import fs from 'node:fs';
import path from 'node:path';
import {fileURLToPath} from 'node:url';
import {MessageChannel, Worker, receiveMessageOnPort} from 'node:worker_threads';
import {Model} from './model.js';
import {Engine, bytesFile, several, single, urlGroup} from './stele.js';

export {SteleError} from './stele.js';

function pathFile(file, opened) {
  const descriptor = fs.openSync(file, 'r');
  opened.push(descriptor);
  return {
    size: fs.fstatSync(descriptor).size,
    read(offset, target) {
      for (let done = 0; done < target.length;) {
        const n = fs.readSync(descriptor, target, done, target.length - done, offset + done);
        if (n === 0) throw new Error('the file has become shorter');
        done += n;
      }
    },
  };
}

const isBelow = (file, folder) => !path.relative(folder, file).startsWith('..') && !path.isAbsolute(path.relative(folder, file));

/** The group of a folder. Links that lead out of it are refused, except to the blobs of a cache of the Hugging Face hub. */
function folderGroup(folder, listed, own) {
  const opened = [], files = new Map(), root = fs.realpathSync(folder), blobs = path.resolve(root, '../../blobs');
  const open = (name) => {
    if (!files.has(name)) {
      const file = path.join(folder, name);
      if (!fs.statSync(file, {throwIfNoEntry: false})?.isFile()) return null;
      const real = fs.realpathSync(file);
      if (name !== own && !isBelow(real, root) && !isBelow(real, blobs)) throw new Error(`the link leads out of the folder: ${file}`);
      files.set(name, pathFile(file, opened));
    }
    return files.get(name);
  };
  const names = !listed ? null : fs.readdirSync(folder, {recursive: true, withFileTypes: true})
    .filter((entry) => entry.isFile() || entry.isSymbolicLink())
    .map((entry) => path.relative(folder, path.join(entry.parentPath ?? entry.path, entry.name)).split(path.sep).join('/'));
  return {names, open, close() { for (const descriptor of opened.splice(0)) fs.closeSync(descriptor); }};
}

let thread = null;
function request(url, first, last) {
  thread ??= new Worker(new URL('./fetch.js', import.meta.url));
  thread.unref();
  const signal = new Int32Array(new SharedArrayBuffer(4));
  const {port1, port2} = new MessageChannel();
  thread.postMessage({url, first, last, signal, port: port2}, [port2]);
  Atomics.wait(signal, 0, 0);
  const {message} = receiveMessageOnPort(port1);
  port1.close();
  if (message.error !== undefined) throw new Error(`${message.error}: ${url}`);
  return message;
}

let engine = null;
const shared = () => engine ??= Engine.load(fs.promises.readFile(new URL('./stele.wasm', import.meta.url)));

async function groupOf(source, name) {
  if (source instanceof Uint8Array || source instanceof ArrayBuffer) return [single(name, bytesFile(new Uint8Array(source.buffer ?? source, source.byteOffset ?? 0, source.byteLength))), name];
  if (source instanceof Blob) return groupOf(await source.arrayBuffer(), source.name ?? name);
  if (Array.isArray(source)) {
    const files = new Map();
    for (const file of source) files.set(file.name, bytesFile(new Uint8Array(await file.arrayBuffer())));
    return [several(files), ''];
  }
  if (/^https?:/i.test(String(source))) return urlGroup(String(source), request);
  const file = path.resolve(source instanceof URL ? fileURLToPath(source) : source);
  if (fs.statSync(file).isDirectory()) return [folderGroup(file, true, ''), ''];
  return [folderGroup(path.dirname(file), false, path.basename(file)), path.basename(file)];
}

export async function open(source, {name = 'memory'} = {}) {
  const own = await shared();
  const model = own.open(...await groupOf(source, name));
  const calls = {
    read: ({tensor, elements, bytes, ...range}) => model.read(tensor, {elements, bytes}, range),
    statistics: ({tensor}) => model.statistics(tensor),
    hash: () => model.hash(),
    close: () => model.close(),
  };
  const ask = (call, values) => call === 'close' ? model.close() : new Promise((done) => done(calls[call](values)));
  return new Model(ask, model.describe());
}
