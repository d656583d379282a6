// What open() returns. `ask(call, values)` runs a function of the module, here or in a worker.

const dispose = Symbol.dispose ?? Symbol.for('Symbol.dispose');

export class Tensor {
  #ask;
  #number;
  constructor(ask, number, {name, dtype, shape, elements, bytes, ...details}) {
    this.#ask = ask;
    this.#number = number;
    Object.assign(this, {name, dtype, shape, elements, bytes, details});
  }
  read({raw = false, start = 0, count = this.elements - start} = {}) {
    return this.#ask('read', {tensor: this.#number, elements: this.elements, bytes: this.bytes, raw, start, count});
  }
  statistics() { return this.#ask('statistics', {tensor: this.#number}); }
}

export class Model {
  #ask;
  #tensors;
  constructor(ask, {format, metadata, properties = {}, notes = [], tensors}) {
    this.#ask = ask;
    Object.assign(this, {format, metadata, properties, notes});
    this.tensors = tensors.map((tensor, number) => new Tensor(ask, number, tensor));
  }
  /** Returns the tensor with this name, or undefined. */
  tensor(name) {
    this.#tensors ??= new Map(this.tensors.map((tensor) => [tensor.name, tensor]));
    return this.#tensors.get(name);
  }
  hash() { return this.#ask('hash', {}); }
  close() { this.#ask('close', {}); }
  [dispose]() { this.close(); }
}
