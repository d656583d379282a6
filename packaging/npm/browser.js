// stele for browsers: a worker reads files and ranges of URLs, because the module does so synchronously.
import {Model} from './model.js';
import {SteleError} from './stele.js';

export {SteleError};

let worker = null, last = 0;
const waiting = new Map();

function post(message) {
  if (worker === null) {
    worker = new Worker(new URL('./worker.js', import.meta.url), {type: 'module'});
    worker.onmessage = ({data: {id, result, text, error}}) => {
      const {done, fail} = waiting.get(id);
      waiting.delete(id);
      if (text === undefined) done(result); else fail(new SteleError(text, error));
    };
    worker.onerror = (event) => {
      for (const {fail} of waiting.values()) fail(new SteleError(event.message));
      waiting.clear();
    };
  }
  return new Promise((done, fail) => {
    waiting.set(++last, {done, fail});
    worker.postMessage({id: last, ...message});
  });
}

export async function open(source, {name = 'memory'} = {}) {
  const input = typeof source === 'string' || source instanceof URL ? {url: new URL(source, location.href).href}
    : {files: (Array.isArray(source) ? source : [source]).map((file) => ({name: file.name ?? name, file: file instanceof Blob ? file : new Blob([file])})),
       folder: Array.isArray(source)};
  const {key, description} = await post({call: 'open', ...input});
  return new Model((call, values) => post({call, key, ...values}), description);
}
