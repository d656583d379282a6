// The worker of browser.js.
import {Engine, SteleError, blobFile, requestByXhr, several, urlGroup} from './stele.js';

const engine = Engine.load(fetch(new URL('./stele.wasm', import.meta.url)));
const models = new Map();
let last = 0;

const calls = {
  open(own, {url, files, folder}) {
    const [group, name] = url !== undefined ? urlGroup(url, requestByXhr)
      : [several(new Map(files.map((f) => [f.name, blobFile(f.file)]))), folder ? '' : files[0].name];
    models.set(++last, own.open(group, name));
    return {key: last, description: models.get(last).describe()};
  },
  read: (own, {key, tensor, elements, bytes, ...range}) => models.get(key).read(tensor, {elements, bytes}, range),
  statistics: (own, {key, tensor}) => models.get(key).statistics(tensor),
  hash: (own, {key}) => models.get(key).hash(),
  close(own, {key}) {
    models.get(key)?.close();
    models.delete(key);
  },
};

onmessage = async ({data: {id, call, ...values}}) => {
  try {
    const own = await engine;
    if (call !== 'open' && call !== 'close' && !models.has(values.key)) throw new SteleError('the model is closed');
    const result = calls[call](own, values);
    postMessage({id, result}, ArrayBuffer.isView(result) ? [result.buffer] : []);
  } catch (error) {
    postMessage({id, text: error.message, error: {...error}});
  }
};
