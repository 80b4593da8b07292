/**
 * Text that came from outside, made safe to show: printable ASCII only (OPEN-13).
 * @param {string} text
 */
export function escape(text: string): string;
/** A refusal: one code of section 14, and words for people (OPEN-13). */
export class WeigError extends Error {
    /**
     * @param {ErrorCode} code
     * @param {string} message
     * @param {string} [field] the field that is wrong, such as `meta[3].data_offset`
     * @param {unknown} [cause]
     */
    constructor(code: ErrorCode, message: string, field?: string, cause?: unknown);
    code: ErrorCode;
    field: string;
}
/** One tensor. Its bytes are read when they are asked for; MODIFIED where they changed by then. */
export class Tensor {
    /**
     * @internal
     * @param {Source} source
     * @param {ByteOrder} order
     * @param {{ name: string, dtype: string, unit: number, shape: readonly number[],
     *   offset: number, nbytes: number }} fields
     */
    constructor(source: Source, order: ByteOrder, { name, dtype, unit, shape, offset, nbytes }: {
        name: string;
        dtype: string;
        unit: number;
        shape: readonly number[];
        offset: number;
        nbytes: number;
    });
    name: string;
    dtype: string;
    /** The dimensions; a scalar has none. */
    shape: readonly number[];
    /** Where in the file the bytes start; with `nbytes` the same for aliases (DATA-4). */
    offset: number;
    nbytes: number;
    /**
     * The elements, row-major, a chunk at a time; each chunk holds until the next one is taken. Bit
     * patterns are moved, never read as numbers (section 8).
     * @param {ByteOrder} [order]
     * @returns {Generator<Uint8Array, void, undefined>}
     */
    chunks(order?: ByteOrder): Generator<Uint8Array, void, undefined>;
    /**
     * All elements, row-major, in fresh memory of the caller's own.
     * @param {ByteOrder} [order]
     */
    bytes(order?: ByteOrder): Uint8Array<ArrayBuffer>;
    /**
     * For mode 'read': from now on the bytes come from private memory (OPEN-14).
     * @internal
     * @param {Map<number, Uint8Array>} copies
     */
    keep(copies: Map<number, Uint8Array>): void;
    #private;
}
/** An open file of named tensors: all of level open was checked before one exists (OPEN-6). */
export class WeigFile {
    /**
     * Whatever is wrong with the file comes as a `WeigError`.
     * @param {string} path
     * @param {OpenOptions} [options]
     */
    constructor(path: string, { mode, level }?: OpenOptions);
    /** @type {ByteOrder} */
    byteOrder: ByteOrder;
    /** In file order. @type {readonly Tensor[]} */
    tensors: readonly Tensor[];
    /** @param {string} name */
    get(name: string): Tensor;
    /** Refuses with MODIFIED where the file is no longer the one that was opened (OPEN-10). */
    checkUnmodified(): void;
    /** Closes the descriptor. In mode 'lazy' no more bytes can be read; what was read stays. */
    close(): void;
    #private;
}
/**
 * the codes of section 14
 */
export type ErrorCode = "IO" | "NOT_REGULAR_FILE" | "TOO_LARGE" | "TOO_SMALL" | "BAD_MAGIC" | "BAD_VERSION" | "UNKNOWN_FLAG" | "BAD_RESERVED" | "TRUNCATED" | "TRAILING_DATA" | "BAD_FILE_SIZE" | "BAD_SENTINEL" | "BAD_META_TABLE" | "BAD_DATA_REGION" | "MISALIGNED" | "BAD_DTYPE" | "BAD_NAME" | "DUPLICATE_NAME" | "BAD_SHAPE" | "BAD_DATA_SIZE" | "BAD_DATA_RANGE" | "OVERLAP" | "NUMBER_TOO_LARGE" | "NONZERO_PADDING" | "BAD_BOOL" | "MODIFIED" | "CLOSED" | "NO_SUCH_TENSOR" | "UNSUPPORTED";
export type ByteOrder = "little" | "big";
export type OpenOptions = {
    mode?: "lazy" | "read";
    level?: "open" | "deep";
};
/**
 * An open regular file. Metadata is read through a cache of pages, so that only the pages that
 * records point to are ever read (OPEN-5), however large the table claims to be.
 * @internal
 */
declare class Source {
    static "__#private@#PAGE": number;
    static "__#private@#SLOTS": number;
    /** @param {string} name */
    constructor(name: string);
    size: number;
    get closed(): boolean;
    close(): void;
    /** The path names another file now, or the file another size or time (OPEN-10). */
    get modified(): boolean;
    /** Refuses where the open file itself, whatever its name, was written to since. */
    checkContent(): void;
    /**
     * Fills a buffer from a place of the file (OPEN-11).
     * @param {Uint8Array} into
     * @param {number} position
     */
    read(into: Uint8Array, position: number): void;
    /**
     * Copies a few bytes of the metadata; the range lies in the file.
     * @param {Uint8Array} into
     * @param {number} position
     * @param {number} count
     */
    copy(into: Uint8Array, position: number, count: number): void;
    #private;
}
export {};
