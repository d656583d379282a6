/** An error of the library; `message` is its whole text. */
export class SteleError extends Error {
  /** For example "bad_magic", "truncated", "unsupported", "io", "checksum". */
  code?: string;
  /** The tensor. */
  path?: string;
  file?: string;
  expected?: string;
  found?: string;
  hint?: string;
  offset?: number;
}

export type Numbers =
  | Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array | BigInt64Array | BigUint64Array;

export interface ReadOptions {
  /** The bytes as they are stored, as a Uint8Array. */
  raw?: boolean;
  /** The first element; 0. */
  start?: number;
  /** The number of elements; all that follow. */
  count?: number;
}

export interface Statistics {
  /** The reason why the tensor cannot be read; the other members are then absent. */
  damaged?: string;
  /** Numbers: two for each complex one. */
  count?: number;
  /** Those of the finite numbers; null if there is none. */
  statistics?: {
    min: number | null; max: number | null; mean: number | null; std: number | null; norm: number | null;
    zeros: number; nan: number; inf: number;
  };
  /** The counts of 48 equal ranges between min and max. */
  histogram?: number[];
}

export interface Tensor {
  readonly name: string;
  /** "f32", "bf16", "i64", "q4_k", … A quantized weight of several parts has the dtype that it is read as. */
  readonly dtype: string;
  readonly shape: number[];
  readonly elements: number;
  readonly bytes: number;
  /** What else `stele inspect --json` prints of a tensor: offset, checksum, composite, annotations, … */
  readonly details: Record<string, unknown>;
  /**
   * Reads the elements in row-major order. f16, bf16, floats of 8 and 4 bits and quantized blocks become a Float32Array;
   * integers of 64 bits a BigInt64Array or BigUint64Array, of 4 bits an Int8Array or Uint8Array; bool a Uint8Array of 0 and 1;
   * a complex number two floats. All elements are verified by the file's checksum, if it has one; a part is not.
   */
  read(options: ReadOptions & { raw: true }): Promise<Uint8Array>;
  read(options?: ReadOptions): Promise<Numbers>;
  statistics(): Promise<Statistics>;
}

export interface Model {
  /** "safetensors", "gguf", "pytorch", "onnx", "keras", "npy", "npz", "stele". */
  readonly format: string;
  readonly metadata: Record<string, string>;
  /** Typed metadata, such as GGUF's. */
  readonly properties: Record<string, unknown>;
  /** Sentences about parts that were not understood. */
  readonly notes: string[];
  readonly tensors: Tensor[];
  tensor(name: string): Tensor | undefined;
  /** The digest of all tensors that `stele hash` prints. */
  hash(): Promise<string>;
  /** Frees the memory, and closes the files. */
  close(): void;
  [Symbol.dispose](): void;
}

/**
 * Opens a model without reading its tensors: a path (in Node, of a file or a folder), an address whose server allows ranges, a
 * File, several Files of a folder, or bytes. `name` is the name of bytes, whose extension tells a few formats.
 */
export function open(source: string | URL | Blob | File[] | Uint8Array | ArrayBuffer, options?: { name?: string }): Promise<Model>;
