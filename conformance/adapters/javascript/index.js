// A loader of WEIG files, version 1, written from SPEC.md. Rule ids stand at the checks.
//
// Node has no mmap. A file is opened by reading its metadata alone; the bytes of a tensor are read
// from the descriptor when they are asked for (mode 'lazy'), or all of them once, when the file is
// opened (mode 'read'). What is given out is always a fresh copy, so nobody can write to another's.

import fs from 'node:fs';
import path from 'node:path';
import v8 from 'node:v8';

/**
 * @typedef {'IO' | 'NOT_REGULAR_FILE' | 'TOO_LARGE' | 'TOO_SMALL' | 'BAD_MAGIC' | 'BAD_VERSION'
 *   | 'UNKNOWN_FLAG' | 'BAD_RESERVED' | 'TRUNCATED' | 'TRAILING_DATA' | 'BAD_FILE_SIZE'
 *   | 'BAD_SENTINEL' | 'BAD_META_TABLE' | 'BAD_DATA_REGION' | 'MISALIGNED' | 'BAD_DTYPE'
 *   | 'BAD_NAME' | 'DUPLICATE_NAME' | 'BAD_SHAPE' | 'BAD_DATA_SIZE' | 'BAD_DATA_RANGE' | 'OVERLAP'
 *   | 'NUMBER_TOO_LARGE' | 'NONZERO_PADDING' | 'BAD_BOOL' | 'MODIFIED' | 'CLOSED'
 *   | 'NO_SUCH_TENSOR' | 'UNSUPPORTED'} ErrorCode the codes of section 14
 * @typedef {'little' | 'big'} ByteOrder
 * @typedef {{ mode?: 'lazy' | 'read', level?: 'open' | 'deep' }} OpenOptions
 */

const MAX_NUMBER = 2n ** 53n - 1n;
const MAX = Number.MAX_SAFE_INTEGER; // the same number
const SMALLEST = 72;
const HEADER = 64;
const RECORD = 48;
const LONGEST_NAME = 1023;
const MOST_DIMS = 64;
const SENTINEL = 0x57454947454e4421n;
const CHUNK = 1 << 20; // a multiple of every unit
const SEGMENT = 1 << 30; // a multiple of CHUNK
const ZEROS = Buffer.alloc(CHUNK);

/** Section 8: the index is the code. @type {readonly (readonly [string, number, number])[]} */
const DTYPES = [
  ['F32', 4, 4],
  ['F16', 2, 2],
  ['BF16', 2, 2],
  ['I8', 1, 1],
  ['U8', 1, 1],
  ['I32', 4, 4],
  ['F64', 8, 8],
  ['I64', 8, 8],
  ['I16', 2, 2],
  ['U16', 2, 2],
  ['U32', 4, 4],
  ['U64', 8, 8],
  ['BOOL', 1, 1],
  ['F8_E4M3', 1, 1],
  ['F8_E5M2', 1, 1],
  ['F8_E8M0', 1, 1],
  ['C64', 8, 4],
  ['F8_E4M3FNUZ', 1, 1],
  ['F8_E5M2FNUZ', 1, 1],
];

/** A refusal: one code of section 14, and words for people (OPEN-13). */
export class WeigError extends Error {
  /**
   * @param {ErrorCode} code
   * @param {string} message
   * @param {string} [field] the field that is wrong, such as `meta[3].data_offset`
   * @param {unknown} [cause]
   */
  constructor(code, message, field = '', cause = undefined) {
    super(field ? `${field}: ${message}` : message, cause === undefined ? {} : { cause });
    this.name = 'WeigError';
    this.code = code;
    this.field = field;
  }
}

/**
 * @param {ErrorCode} code @param {string} message
 * @param {string} [field] @param {unknown} [cause]
 */
function wrong(code, message, field, cause) {
  return new WeigError(code, message, field, cause);
}

/**
 * Text that came from outside, made safe to show: printable ASCII only (OPEN-13).
 * @param {string} text
 */
export function escape(text) {
  return text.replace(/[^ -[\]-~]/gu, (c) =>
    c === '\\' ? '\\\\' : `\\u{${/** @type {number} */ (c.codePointAt(0)).toString(16)}}`,
  );
}

/**
 * An open regular file. Metadata is read through a cache of pages, so that only the pages that
 * records point to are ever read (OPEN-5), however large the table claims to be.
 */
class Source {
  static #PAGE = 4096;
  static #SLOTS = 512;
  /** @type {{ number: number, bytes: Buffer }[]} */
  #pages = [];
  #path;
  /** @type {fs.BigIntStats} */
  #identity;
  /** @type {number | undefined} */
  #fd;

  /** @param {string} name */
  constructor(name) {
    this.#path = path.resolve(name);
    // OPEN-2: neither a FIFO nor a device may hold us up, nor become our terminal.
    const { O_RDONLY, O_NONBLOCK = 0, O_NOCTTY = 0 } = fs.constants;
    try {
      this.#fd = fs.openSync(this.#path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    } catch (error) {
      // OPEN-1: open(2) has no word for a socket (ENXIO); the path may tell what it is.
      if (isSpecial(this.#path)) throw notRegular();
      throw io(error);
    }
    try {
      this.#identity = fs.fstatSync(this.#fd, { bigint: true }); // OPEN-3, OPEN-10
      if (!this.#identity.isFile()) throw notRegular(); // OPEN-1
      if (this.#identity.size > MAX_NUMBER) throw wrong('TOO_LARGE', 'past 2^53 bytes');
    } catch (error) {
      this.close();
      throw error instanceof WeigError ? error : io(error);
    }
    this.size = Number(this.#identity.size);
  }

  get closed() {
    return this.#fd === undefined;
  }

  close() {
    if (this.#fd !== undefined) fs.closeSync(this.#fd);
    this.#fd = undefined;
  }

  /** The path names another file now, or the file another size or time (OPEN-10). */
  get modified() {
    try {
      const now = fs.statSync(this.#path, { throwIfNoEntry: false, bigint: true });
      return !now || !sameFile(now, this.#identity);
    } catch (error) {
      throw io(error);
    }
  }

  /** Refuses where the open file itself, whatever its name, was written to since. */
  checkContent() {
    if (this.#fd === undefined) throw wrong('CLOSED', 'the file was closed');
    let now;
    try {
      now = fs.fstatSync(this.#fd, { bigint: true });
    } catch (error) {
      throw io(error);
    }
    if (!sameFile(now, this.#identity)) throw wrong('MODIFIED', 'the file changed');
  }

  /**
   * Fills a buffer from a place of the file (OPEN-11).
   * @param {Uint8Array} into
   * @param {number} position
   */
  read(into, position) {
    if (this.#fd === undefined) throw wrong('CLOSED', 'the file was closed');
    for (let done = 0; done < into.length;) {
      const wanted = Math.min(into.length - done, 1 << 30);
      let got;
      try {
        got = fs.readSync(this.#fd, into, done, wanted, position + done);
      } catch (error) {
        if (/** @type {NodeJS.ErrnoException} */ (error).code === 'EINTR') continue;
        throw io(error);
      }
      if (got === 0) throw wrong('TRUNCATED', `the file ends at byte ${position + done}`);
      done += got;
    }
  }

  /**
   * Copies a few bytes of the metadata; the range lies in the file.
   * @param {Uint8Array} into
   * @param {number} position
   * @param {number} count
   */
  copy(into, position, count) {
    for (let done = 0; done < count;) {
      const at = position + done;
      const inPage = at % Source.#PAGE;
      const page = this.#page((at - inPage) / Source.#PAGE);
      done += page.copy(into, done, inPage, Math.min(page.length, inPage + count - done));
    }
  }

  /** @param {number} number */
  #page(number) {
    const slot = number % Source.#SLOTS;
    let page = this.#pages[slot];
    if (page?.number !== number) {
      const start = number * Source.#PAGE;
      const bytes = Buffer.alloc(Math.min(Source.#PAGE, this.size - start));
      this.read(bytes, start);
      page = { number, bytes };
      this.#pages[slot] = page;
    }
    return page.bytes;
  }
}

/** @param {fs.BigIntStats} a @param {fs.BigIntStats} b */
function sameFile(a, b) {
  return a.dev === b.dev && a.ino === b.ino && a.size === b.size && a.mtimeNs === b.mtimeNs;
}

/** Whether a path leads to something that is there and no regular file. @param {string} name */
function isSpecial(name) {
  try {
    return !fs.statSync(name).isFile();
  } catch {
    return false; // then the error of the open itself is the answer
  }
}

function notRegular() {
  return wrong('NOT_REGULAR_FILE', 'not a regular file');
}

/**
 * What the operating system refuses is IO (OPEN-11); anything else is a fault of ours.
 * @param {unknown} error
 */
function io(error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
  if (typeof code !== 'string' || !/^E[A-Z0-9]+$/.test(code)) return error;
  return wrong('IO', escape(message), '', error);
}

/** One tensor. Its bytes are read when they are asked for; MODIFIED where they changed by then. */
export class Tensor {
  #source;
  #order;
  #unit;
  /** In pieces of SEGMENT bytes: an array of Node has an end. @type {Uint8Array[] | undefined} */
  #copy;

  /**
   * @param {Source} source
   * @param {ByteOrder} order
   * @param {{ name: string, dtype: string, unit: number, shape: readonly number[],
   *   offset: number, nbytes: number }} fields
   */
  constructor(source, order, { name, dtype, unit, shape, offset, nbytes }) {
    this.#source = source;
    this.#order = order;
    this.#unit = unit;
    this.name = name;
    this.dtype = dtype;
    /** The dimensions; a scalar has none. */
    this.shape = shape;
    /** Where in the file the bytes start; with `nbytes` the same for aliases (DATA-4). */
    this.offset = offset;
    this.nbytes = nbytes;
  }

  /**
   * The elements, row-major, a chunk at a time; each chunk holds until the next one is taken. Bit
   * patterns are moved, never read as numbers (section 8).
   * @param {ByteOrder} [order]
   * @returns {Generator<Uint8Array, void, undefined>}
   */
  *chunks(order = 'little') {
    const memory = Buffer.allocUnsafe(Math.min(CHUNK, this.nbytes));
    for (let done = 0; done < this.nbytes; done += memory.length) {
      const chunk = memory.subarray(0, Math.min(memory.length, this.nbytes - done));
      if (this.#copy) {
        const from = done % SEGMENT; // a multiple of CHUNK, and SEGMENT is one too
        chunk.set(
          /** @type {Uint8Array} */ (this.#copy[(done - from) / SEGMENT]).subarray(
            from,
            from + chunk.length,
          ),
        );
      } else {
        this.#source.read(chunk, this.offset + done);
      }
      if (order !== this.#order) {
        if (this.#unit === 2) chunk.swap16();
        if (this.#unit === 4) chunk.swap32();
        if (this.#unit === 8) chunk.swap64();
      }
      yield chunk;
    }
    if (!this.#copy) this.#source.checkContent(); // OPEN-10: all of it is of the file we checked
  }

  /**
   * All elements, row-major, in fresh memory of the caller's own.
   * @param {ByteOrder} [order]
   */
  bytes(order = 'little') {
    const all = allocate(this.nbytes);
    let done = 0;
    for (const chunk of this.chunks(order)) {
      all.set(chunk, done);
      done += chunk.length;
    }
    return all;
  }

  /**
   * For mode 'read': from now on the bytes come from private memory (OPEN-14).
   * @param {Map<string, Uint8Array[]>} copies
   */
  keep(copies) {
    if (this.nbytes === 0) return;
    let copy = copies.get(secret(this.offset)); // aliases share it
    if (!copy) {
      copy = [];
      for (let done = 0; done < this.nbytes; done += SEGMENT) {
        const segment = allocate(Math.min(SEGMENT, this.nbytes - done));
        this.#source.read(segment, this.offset + done);
        copy.push(segment);
      }
      copies.set(secret(this.offset), copy);
    }
    this.#copy = copy;
  }
}

/**
 * Memory for bytes of the file, whose range was checked before (OPEN-4).
 * @param {number} size
 */
function allocate(size) {
  try {
    return new Uint8Array(size);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw wrong('TOO_LARGE', `no memory for ${size} bytes`, '', error); // OPEN-9
  }
}

/** The checks of level open: sections 3 to 11, in the order of the specification. */
class Parser {
  // Strict (NAME-4); and U+FEFF is a character of a name, not a mark to drop.
  #utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  #name = Buffer.alloc(LONGEST_NAME + 1);
  #record = new DataView(new ArrayBuffer(RECORD));
  #dims = new DataView(new ArrayBuffer(8 * MOST_DIMS));
  /** @type {Map<string, readonly number[]>} */
  #shapes = new Map();
  #heap = v8.getHeapStatistics().heap_size_limit / 2;
  /** @type {ByteOrder} */
  order = 'little';
  auxStart = 0;
  dataOffset = 0;
  end = 0;
  /** What belongs to something: [start, end). @type {[number, number][]} */
  owned = [];

  /** @param {Source} source @param {boolean} deep */
  constructor(source, deep) {
    this.source = source;
    this.deep = deep;
  }

  /** All tensors in file order, or the first refusal (OPEN-6). @returns {Tensor[]} */
  parse() {
    const { count, metaOffset } = this.#header();
    this.#own(0, HEADER);
    this.#own(metaOffset, RECORD * count);
    this.#own(this.end, 8);
    const tensors = [];
    const names = new Set();
    for (let i = 0; i < count; i++) {
      this.#heap -= 512; // about what a record takes here
      if (this.#heap < 0) throw wrong('TOO_LARGE', `no memory for ${count} records`); // OPEN-9
      const tensor = this.#tensor(i, metaOffset + RECORD * i);
      const key = secret(tensor.name);
      if (names.has(key)) {
        throw wrong('DUPLICATE_NAME', `a second "${escape(tensor.name)}"`, at(i, 'name_offset')); // NAME-6
      }
      names.add(key);
      tensors.push(tensor);
    }
    this.#overlaps(tensors);
    return tensors;
  }

  #header() {
    const { size } = this.source;
    if (size < SMALLEST) throw wrong('TOO_SMALL', `the file has ${size} bytes`); // HDR-1
    const bytes = Buffer.alloc(HEADER);
    this.source.read(bytes, 0);
    const magic = bytes.readUInt32BE(0); // HDR-2
    if (magic !== 0x57454947 && magic !== 0x47494557) {
      throw wrong('BAD_MAGIC', foreign(bytes), 'header.magic');
    }
    this.order = magic === 0x57454947 ? 'big' : 'little'; // NUM-1
    const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER);
    const version = view.getUint32(4, this.#little);
    if (version !== 1) throw wrong('BAD_VERSION', `${version}`, 'header.version'); // HDR-3
    const count = this.#number(view, 8, 'header.tensor_count');
    const metaOffset = this.#number(view, 16, 'header.meta_offset');
    const dataOffset = this.#number(view, 24, 'header.data_offset');
    const fileSize = this.#number(view, 32, 'header.file_size');
    const sizes = `the file has ${size} bytes and should have ${fileSize}`;
    if (fileSize % 8 !== 0 || fileSize < SMALLEST) {
      throw wrong('BAD_FILE_SIZE', `${fileSize} is no size of a file`, 'header.file_size'); // HDR-4
    }
    if (size < fileSize) throw wrong('TRUNCATED', sizes, 'header.file_size'); // HDR-5
    if (size > fileSize) throw wrong('TRAILING_DATA', sizes, 'header.file_size'); // HDR-6
    const flags = view.getBigUint64(40, this.#little);
    if (BigInt.asUintN(32, flags) !== 0n) {
      throw wrong('UNKNOWN_FLAG', `0x${flags.toString(16)}`, 'header.flags'); // HDR-7
    }
    if (!bytes.subarray(48).equals(ZEROS.subarray(0, 16))) {
      throw wrong('BAD_RESERVED', 'not zero', 'header.reserved'); // HDR-8
    }
    const end = fileSize - 8;
    if (metaOffset < HEADER || metaOffset % 8 !== 0) {
      throw wrong('BAD_META_TABLE', `starts at ${metaOffset}`, 'header.meta_offset'); // META-1, META-2
    }
    if (dataOffset % 64 !== 0) {
      throw wrong('MISALIGNED', `${dataOffset} is no multiple of 64`, 'header.data_offset'); // REGION-1
    }
    if (dataOffset > end) {
      throw wrong('BAD_DATA_REGION', `${dataOffset} is past ${end}`, 'header.data_offset'); // REGION-2
    }
    if (metaOffset > dataOffset || count > Math.floor((dataOffset - metaOffset) / RECORD)) {
      throw wrong('BAD_META_TABLE', `${count} records do not fit`, 'header.tensor_count'); // META-3
    }
    const tail = new DataView(new ArrayBuffer(8));
    this.source.read(new Uint8Array(tail.buffer), end);
    if (tail.getBigUint64(0, this.#little) !== SENTINEL) {
      throw wrong('BAD_SENTINEL', 'the file does not end with it', 'sentinel'); // TAIL-1
    }
    this.auxStart = metaOffset + RECORD * count; // at most dataOffset
    this.dataOffset = dataOffset;
    this.end = end;
    return { count, metaOffset };
  }

  get #little() {
    return this.order === 'little';
  }

  /** @param {number} i @param {number} position */
  #tensor(i, position) {
    const record = this.#record;
    this.source.copy(new Uint8Array(record.buffer), position, RECORD);
    const nameOffset = this.#number(record, 0, i, 'name_offset');
    const code = record.getUint32(8, this.#little);
    const shapeOffset = this.#number(record, 16, i, 'shape_offset');
    const rank = this.#number(record, 24, i, 'shape_count');
    const offset = this.#number(record, 32, i, 'data_offset');
    const nbytes = this.#number(record, 40, i, 'data_size');
    if (record.getUint32(12) !== 0) throw wrong('BAD_RESERVED', 'not zero', at(i, 'pad')); // META-4
    const dtype = DTYPES[code];
    if (!dtype) throw wrong('BAD_DTYPE', `code ${code}`, at(i, 'dtype')); // DTYPE-1
    const [label, size, unit] = dtype;
    const name = this.#nameAt(i, nameOffset);
    const shape = this.#shapeAt(i, shapeOffset, rank);
    const wanted = byteSize(i, shape, size);
    if (nbytes !== wanted) {
      throw wrong('BAD_DATA_SIZE', `${nbytes}, not ${wanted}`, at(i, 'data_size')); // SHAPE-5
    }
    if (offset % 64 !== 0) {
      throw wrong('MISALIGNED', `${offset} is no multiple of 64`, at(i, 'data_offset')); // DATA-1
    }
    if (offset < this.dataOffset || offset > this.end) {
      throw wrong('BAD_DATA_RANGE', `${offset} is outside`, at(i, 'data_offset')); // DATA-2, DATA-3
    }
    if (nbytes > this.end - offset) {
      throw wrong('BAD_DATA_RANGE', `${nbytes} bytes do not fit`, at(i, 'data_size')); // DATA-3
    }
    this.#own(offset, nbytes);
    return new Tensor(this.source, this.order, { name, dtype: label, unit, shape, offset, nbytes });
  }

  /** @param {number} i @param {number} start */
  #nameAt(i, start) {
    /** @param {string} why */
    const bad = (why) => wrong('BAD_NAME', why, at(i, 'name_offset'));
    if (start < this.auxStart || start >= this.dataOffset) throw bad('not in the aux area'); // NAME-1
    const most = Math.min(this.#name.length, this.dataOffset - start);
    this.source.copy(this.#name, start, most);
    const length = this.#name.subarray(0, most).indexOf(0);
    if (length < 0) throw bad(`no NUL within ${most} bytes`); // NAME-2, NAME-3
    if (length === 0) throw bad('an empty name'); // NAME-3
    const bytes = this.#name.subarray(0, length);
    if (bytes.some((c) => c < 0x20 || c === 0x7f)) throw bad('a control byte'); // NAME-5
    this.#own(start, length + 1);
    this.#heap -= 4 * length;
    try {
      return this.#utf8.decode(bytes);
    } catch (error) {
      if (error instanceof TypeError) throw bad('not UTF-8'); // NAME-4
      throw error;
    }
  }

  /** @param {number} i @param {number} start @param {number} rank @returns {readonly number[]} */
  #shapeAt(i, start, rank) {
    if (rank > MOST_DIMS) throw wrong('BAD_SHAPE', `rank ${rank}`, at(i, 'shape_count')); // SHAPE-1
    if (
      start < this.auxStart ||
      start > this.dataOffset ||
      rank > Math.floor((this.dataOffset - start) / 8)
    ) {
      throw wrong('BAD_SHAPE', 'not in the aux area', at(i, 'shape_offset')); // SHAPE-2
    }
    // Records may share an array: then they share ours too, else a small file made for it would
    // take 512 bytes of memory for each of its records.
    const key = secret(start, rank);
    const known = this.#shapes.get(key);
    if (known) return known;
    this.source.copy(new Uint8Array(this.#dims.buffer), start, 8 * rank); // SHAPE-3: bytes, copied
    /** @type {number[]} */
    const shape = [];
    for (let k = 0; k < rank; k++) shape.push(this.#number(this.#dims, 8 * k, i, `shape[${k}]`));
    Object.freeze(shape);
    this.#own(start, 8 * rank);
    this.#heap -= 64 + 16 * rank;
    this.#shapes.set(key, shape);
    return shape;
  }

  /** DATA-4, by comparing neighbours in the order of offsets (OPEN-5). @param {Tensor[]} tensors */
  #overlaps(tensors) {
    const sorted = tensors.filter(({ nbytes }) => nbytes > 0).sort((a, b) => a.offset - b.offset);
    for (const [i, two] of sorted.entries()) {
      const one = sorted[i - 1];
      if (!one || two.offset - one.offset >= one.nbytes) continue;
      if (two.offset !== one.offset || two.nbytes !== one.nbytes || two.dtype !== one.dtype) {
        const names = `"${escape(one.name)}" and "${escape(two.name)}"`;
        throw wrong('OVERLAP', `${names} share bytes`);
      }
    }
  }

  /** @param {number} start @param {number} size */
  #own(start, size) {
    if (this.deep && size > 0) this.owned.push([start, start + size]);
  }

  /**
   * NUM-2. A record's field is named by its record, so that no text is made for a good one.
   * @param {DataView} view @param {number} position @param {number | string} record
   * @param {string} [field]
   */
  #number(view, position, record, field = '') {
    const value = view.getBigUint64(position, this.#little);
    if (value > MAX_NUMBER) {
      const where = typeof record === 'number' ? at(record, field) : record;
      throw wrong('NUMBER_TOO_LARGE', `${value}`, where);
    }
    return Number(value);
  }
}

/**
 * A key for a Map or a Set (OPEN-5). V8 hashes strings with a seed that nobody knows; but numbers,
 * and strings that look like one, by their value: who chooses them could make them all collide.
 * @param {...(string | number)} parts
 */
function secret(...parts) {
  return `:${parts.join(':')}`;
}

/** @param {number} i @param {string} field */
function at(i, field) {
  return `meta[${i}].${field}`;
}

/**
 * The bytes that a shape takes. Zeros are looked for among the dimensions, and each product is
 * tested by division: a number past 2^53 would be rounded, not refused.
 * @param {number} i @param {readonly number[]} shape @param {number} size
 */
function byteSize(i, shape, size) {
  let product = size;
  for (const dim of shape) {
    if (dim === 0) continue;
    if (product > Math.floor(MAX / dim)) {
      throw wrong('BAD_SHAPE', `[${shape}] is too large`, at(i, 'shape')); // SHAPE-4
    }
    product *= dim;
  }
  return shape.includes(0) ? 0 : product;
}

/** Names what a file without our magic is, where its first bytes tell. @param {Buffer} header */
function foreign(header) {
  const start = header.toString('latin1');
  if (/^version https:\/\/git-lfs/.test(start))
    return 'a git-LFS pointer, the file was not fetched';
  if (/^\s*<(!doctype|html)/i.test(start)) return 'this is HTML, perhaps an error page';
  if (start.startsWith('PK\x03\x04')) return 'this is ZIP (PyTorch and npz files are)';
  if (start.startsWith('GGUF')) return 'this is GGUF';
  if (start.startsWith('\x1f\x8b')) return 'this is gzip';
  if (start.startsWith('\x93NUMPY')) return 'this is npy';
  if (start.startsWith('\0\0{', 6)) return 'this is safetensors';
  return `the file starts with ${header.toString('hex', 0, 4)}`;
}

/**
 * Section 12. Aliases are looked at once, however many there are.
 * @param {Parser} parser @param {Tensor[]} tensors
 */
function verify({ source, owned }, tensors) {
  const memory = Buffer.alloc(CHUNK);
  let done = 0;
  for (const [start, end] of owned.sort((a, b) => a[0] - b[0])) {
    // the last one is the sentinel
    while (done < start) {
      const chunk = memory.subarray(0, Math.min(CHUNK, start - done));
      source.read(chunk, done);
      if (!chunk.equals(ZEROS.subarray(0, chunk.length))) {
        const bad = done + chunk.findIndex((byte) => byte !== 0);
        throw wrong('NONZERO_PADDING', `byte ${bad} is not zero`); // PAD-1
      }
      done += chunk.length;
    }
    done = Math.max(done, end);
  }
  const seen = new Set();
  for (const tensor of tensors) {
    if (tensor.dtype !== 'BOOL' || tensor.nbytes === 0 || seen.has(secret(tensor.offset))) continue;
    seen.add(secret(tensor.offset));
    for (const chunk of tensor.chunks()) {
      for (let i = 0; i < chunk.length; i++) {
        if (/** @type {number} */ (chunk[i]) > 1) {
          throw wrong('BAD_BOOL', `"${escape(tensor.name)}" holds a ${chunk[i]}`); // BOOL-1
        }
      }
    }
  }
}

/** An open file of named tensors: all of level open was checked before one exists (OPEN-6). */
export class WeigFile {
  #source;
  /** @type {Map<string, Tensor> | undefined} */
  #byName;

  /**
   * Whatever is wrong with the file comes as a `WeigError`.
   * @param {string} path
   * @param {OpenOptions} [options]
   */
  constructor(path, { mode = 'lazy', level = 'open' } = {}) {
    this.#source = new Source(path);
    try {
      const parser = new Parser(this.#source, level === 'deep');
      const tensors = parser.parse();
      if (level === 'deep') verify(parser, tensors);
      if (mode === 'read') {
        const copies = new Map();
        for (const tensor of tensors) tensor.keep(copies);
      }
      /** @type {ByteOrder} */
      this.byteOrder = parser.order;
      /** In file order. @type {readonly Tensor[]} */
      this.tensors = Object.freeze(tensors);
    } catch (error) {
      this.#source.close();
      throw error;
    }
  }

  /** @param {string} name */
  get(name) {
    if (this.#source.closed) throw wrong('CLOSED', 'the file was closed');
    this.#byName ??= new Map(this.tensors.map((tensor) => [secret(tensor.name), tensor]));
    const tensor = this.#byName.get(secret(name));
    if (!tensor) throw wrong('NO_SUCH_TENSOR', `no tensor "${escape(name)}"`);
    return tensor;
  }

  /** Refuses with MODIFIED where the file is no longer the one that was opened (OPEN-10). */
  checkUnmodified() {
    if (this.#source.modified) throw wrong('MODIFIED', 'the file changed since it was opened');
  }

  /** Closes the descriptor. In mode 'lazy' no more bytes can be read; what was read stays. */
  close() {
    this.#source.close();
  }
}
