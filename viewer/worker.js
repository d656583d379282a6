// The viewer's worker: runs the module, one call after the other. The page ends the worker to cancel a call.
// build.py puts stele.js in front of this file.

let engine = null;
const models = new Map();
let read = 0;

function counted(file) {
  return file && {size: file.size, read(offset, target) { file.read(offset, target); read += target.length; }};
}
function countedGroup(group) { return {...group, open: (name) => counted(group.open(name))}; }

/** Ends the request at its headers, so that a server that ignores ranges does not send the whole file. */
async function probe(url) {
  const controller = new AbortController();
  let response;
  try {
    response = await fetch(url, {headers: {Range: 'bytes=0-0'}, signal: controller.signal});
  } catch {
    return;  // the request of the first bytes has the error
  }
  const whole = response.status === 200;
  controller.abort();
  if (whole) throw new Error(`the server sends only whole files, without ranges: ${url}`);
}

const calls = {
  async start({module}) { engine = await Engine.load(module); },
  async open({key, files, folder, url}) {
    let group, name = '';
    if (url !== undefined) {
      await probe(url);
      [group, name] = urlGroup(url, requestByXhr);
    } else {
      group = several(new Map(files.map(({name, file}) => [name, blobFile(file)])));
      if (!folder) name = files[0].name;
    }
    const model = engine.open(countedGroup(group), name);
    models.set(key, model);
    return model.describe();
  },
  close({key}) {
    models.get(key)?.close();
    models.delete(key);
  },
  statistics({key, tensor}) { return models.get(key).statistics(tensor); },
  values({key, tensor, elements, bytes, count}) {
    return Array.from(models.get(key).read(tensor, {elements, bytes}, {count}), String);
  },
  diff({a, b}) { return engine.diff(models.get(a), models.get(b)); },
  hash({key}) { return models.get(key).hash(); },
};

let last = Promise.resolve();
onmessage = ({data}) => {
  last = last.then(async () => {
    let done = 0, told = performance.now();
    if (engine !== null) {
      engine.onadvance = (bytes) => {
        done += bytes;
        const now = performance.now();
        if (now - told < 100) return;
        told = now;
        postMessage({id: data.id, progress: done});
      };
    }
    try {
      const result = await calls[data.call](data);
      postMessage({id: data.id, result, read, memory: engine.memory});
    } catch (error) {
      postMessage({id: data.id, error: {...error, message: error.message}, read});
    }
  });
};
