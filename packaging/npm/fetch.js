// The thread of node.js that fetches ranges.
import {parentPort} from 'node:worker_threads';

parentPort.on('message', async ({url, first, last, signal, port}) => {
  let answer;
  try {
    const response = await fetch(url, {headers: {Range: `bytes=${first}-${last}`, 'Accept-Encoding': 'identity'}});
    const partial = response.status === 206;
    if (!partial) await response.body?.cancel();  // a whole file may be large
    answer = {status: response.status, range: response.headers.get('content-range'), bytes: new Uint8Array(partial ? await response.arrayBuffer() : 0)};
  } catch (error) {
    answer = {error: error.cause?.message ?? error.message};
  }
  port.postMessage(answer);
  Atomics.store(signal, 0, 1);
  Atomics.notify(signal, 0);
});
