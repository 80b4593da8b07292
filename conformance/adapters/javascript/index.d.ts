/** The codes of section 14. */
export type ErrorCode =
  | 'IO'
  | 'NOT_REGULAR_FILE'
  | 'TOO_LARGE'
  | 'TOO_SMALL'
  | 'BAD_MAGIC'
  | 'BAD_VERSION'
  | 'UNKNOWN_FLAG'
  | 'BAD_RESERVED'
  | 'TRUNCATED'
  | 'TRAILING_DATA'
  | 'BAD_FILE_SIZE'
  | 'BAD_SENTINEL'
  | 'BAD_META_TABLE'
  | 'BAD_DATA_REGION'
  | 'MISALIGNED'
  | 'BAD_DTYPE'
  | 'BAD_NAME'
  | 'DUPLICATE_NAME'
  | 'BAD_SHAPE'
  | 'BAD_DATA_SIZE'
  | 'BAD_DATA_RANGE'
  | 'OVERLAP'
  | 'NUMBER_TOO_LARGE'
  | 'NONZERO_PADDING'
  | 'BAD_BOOL'
  | 'MODIFIED'
  | 'CLOSED'
  | 'NO_SUCH_TENSOR'
  | 'UNSUPPORTED';

export type ByteOrder = 'little' | 'big';

/** The element types of section 8. */
export type Dtype =
  | 'F32'
  | 'F16'
  | 'BF16'
  | 'I8'
  | 'U8'
  | 'I32'
  | 'F64'
  | 'I64'
  | 'I16'
  | 'U16'
  | 'U32'
  | 'U64'
  | 'BOOL'
  | 'F8_E4M3'
  | 'F8_E5M2'
  | 'F8_E8M0'
  | 'C64'
  | 'F8_E4M3FNUZ'
  | 'F8_E5M2FNUZ';

export interface OpenOptions {
  /**
   * `lazy` (the default) reads the bytes of a tensor from the open file when they are asked for.
   * `read` copies them all when the file is opened: then the file may change or go.
   */
  mode?: 'lazy' | 'read';
  /** The level of checking, `open` by default; `deep` may read the whole file. */
  level?: 'open' | 'deep';
}

/** A refusal: one code of section 14, and words for people. */
export class WeigError extends Error {
  constructor(code: ErrorCode, message: string, field?: string, cause?: unknown);
  readonly code: ErrorCode;
  /** The field that is wrong, such as `meta[3].data_offset`; empty where it is none. */
  readonly field: string;
}

/** One tensor of a file. */
export class Tensor {
  private constructor();
  readonly name: string;
  readonly dtype: Dtype;
  /** The dimensions; a scalar has none. */
  readonly shape: readonly number[];
  readonly nbytes: number;
  /** Where in the file the bytes start: the same for aliases. */
  readonly offset: number;
  /**
   * The elements, row-major, a chunk at a time; each chunk holds until the next one is taken.
   * Refuses with MODIFIED where the file changed (mode `lazy`).
   */
  chunks(order?: ByteOrder): Generator<Uint8Array, void, undefined>;
  /** All elements, row-major, in fresh memory of the caller's own; little-endian by default. */
  bytes(order?: ByteOrder): Uint8Array<ArrayBuffer>;
}

/** An open file of named tensors. */
export class WeigFile {
  /** Whatever is wrong with the file comes as a `WeigError`. */
  constructor(path: string, options?: OpenOptions);
  readonly byteOrder: ByteOrder;
  /** In file order. */
  readonly tensors: readonly Tensor[];
  get(name: string): Tensor;
  /** Refuses with MODIFIED where the open file, whatever its name, was written to since. */
  checkUnmodified(): void;
  /** Closes the descriptor. In mode `lazy` no more bytes can be read; what was read stays. */
  close(): void;
}

/** Text that came from outside, made safe to show: printable ASCII only. */
export function escape(text: string): string;
