// A loader of WEIG files, version 1, written from SPEC.md. Rule ids stand at the checks.
//
// Node has no mmap. A file is opened by reading its metadata alone; the bytes of a tensor are read
// from the descriptor when they are asked for (mode 'lazy'), or all of them once, when the file is
// opened (mode 'read'). What is given out is always a fresh copy, so nobody can write to another's.

import { isUtf8 } from 'node:buffer';
import fs from 'node:fs';
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
  /** @type {fs.BigIntStats} */
  #identity;
  /** @type {number | undefined} */
  #fd;

  /** @param {string} path */
  constructor(path) {
    // OPEN-2: neither a FIFO nor a device may hold us up, nor become our terminal.
    const { O_RDONLY, O_NONBLOCK = 0, O_NOCTTY = 0 } = fs.constants;
    try {
      this.#fd = system(() => fs.openSync(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
      this.#identity = this.#now(); // OPEN-3, OPEN-10
      if (!this.#identity.isFile()) throw notRegular(); // OPEN-1
      if (this.#identity.size > MAX_NUMBER) throw new WeigError('TOO_LARGE', 'past 2^53 bytes');
    } catch (error) {
      this.close();
      // OPEN-1: open(2) has no word for a socket (ENXIO); the path may tell what it is.
      throw isSpecial(path) ? notRegular() : error;
    }
    this.size = Number(this.#identity.size);
  }

  close() {
    if (this.#fd !== undefined) fs.closeSync(this.#fd);
    this.#fd = undefined;
  }

  /** The descriptor; or CLOSED. */
  descriptor() {
    if (this.#fd === undefined) throw new WeigError('CLOSED', 'the file was closed');
    return this.#fd;
  }

  #now() {
    return system(() => fs.fstatSync(this.descriptor(), { bigint: true }));
  }

  /** Refuses where the open file itself, whatever its name, was written to since (OPEN-10). */
  checkUnmodified() {
    if (!sameFile(this.#now(), this.#identity)) throw new WeigError('MODIFIED', 'the file changed');
  }

  /**
   * Fills a buffer from a place of the file (OPEN-11).
   * @param {Uint8Array} into
   * @param {number} position
   */
  read(into, position) {
    for (let done = 0; done < into.length;) {
      const [from, at] = [done, position + done];
      const got = system(() => fs.readSync(this.descriptor(), into, from, into.length - from, at));
      if (got === 0) throw new WeigError('TRUNCATED', `the file ends at byte ${at}`);
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
      page = { number, bytes: Buffer.alloc(Math.min(Source.#PAGE, this.size - start)) };
      this.read(page.bytes, start);
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
  return new WeigError('NOT_REGULAR_FILE', 'not a regular file');
}

/**
 * Asks the operating system, again where it was interrupted. What it refuses is IO (OPEN-11);
 * anything else is a fault of ours.
 * @template T
 * @param {() => T} call
 * @returns {T}
 */
function system(call) {
  for (;;) {
    try {
      return call();
    } catch (error) {
      const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
      if (error instanceof WeigError || !/^E[A-Z0-9]+$/.test(code ?? '')) throw error;
      if (code !== 'EINTR') throw new WeigError('IO', escape(message), '', error);
    }
  }
}

/** One tensor. Its bytes are read when they are asked for; MODIFIED where they changed by then. */
export class Tensor {
  #source;
  #order;
  #unit;
  /** In pieces of CHUNK bytes: an array of Node has an end. @type {Uint8Array[] | undefined} */
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
    for (let done = 0; done < this.nbytes; done += CHUNK) {
      const chunk = memory.subarray(0, Math.min(CHUNK, this.nbytes - done));
      const kept = this.#copy?.[done / CHUNK];
      if (kept) chunk.set(kept);
      else this.#source.read(chunk, this.offset + done);
      if (order !== this.#order) {
        if (this.#unit === 2) chunk.swap16();
        if (this.#unit === 4) chunk.swap32();
        if (this.#unit === 8) chunk.swap64();
      }
      yield chunk;
    }
    if (!this.#copy) this.#source.checkUnmodified(); // OPEN-10: all of it is of the file we checked
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
    const key = secret(this.offset, this.nbytes); // aliases share a copy
    const known = copies.get(key);
    this.#copy = known ?? [];
    if (known) return;
    for (const chunk of this.chunks(this.#order)) {
      const piece = allocate(chunk.length);
      piece.set(chunk);
      this.#copy.push(piece);
    }
    copies.set(key, this.#copy);
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
    throw new WeigError('TOO_LARGE', `no memory for ${size} bytes`, '', error); // OPEN-9
  }
}

/** The checks of level open: sections 3 to 11, in the order of the specification. */
class Parser {
  #name = Buffer.alloc(LONGEST_NAME + 1);
  #record = new DataView(new ArrayBuffer(RECORD));
  #dims = new DataView(new ArrayBuffer(8 * MOST_DIMS));
  /** @type {Map<string, readonly number[]>} */
  #shapes = new Map();
  #heap = v8.getHeapStatistics().heap_size_limit / 2;
  #index = -1; // the record that is being checked; none: the header
  #little = true;
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
    const { count, meta } = this.#header();
    this.#own(0, HEADER);
    this.#own(meta, RECORD * count);
    this.#own(this.end, 8);
    const tensors = [];
    const names = new Set();
    for (this.#index = 0; this.#index < count; this.#index++) {
      this.#heap -= 512; // about what a record takes here
      if (this.#heap < 0) throw new WeigError('TOO_LARGE', `no memory for ${count} records`); // OPEN-9
      this.source.copy(new Uint8Array(this.#record.buffer), meta + RECORD * this.#index, RECORD);
      const tensor = this.#tensor(this.#record);
      const key = secret(tensor.name);
      if (names.has(key)) {
        throw this.#wrong('DUPLICATE_NAME', 'name_offset', `a second "${escape(tensor.name)}"`); // NAME-6
      }
      names.add(key);
      tensors.push(tensor);
    }
    checkOverlaps(tensors);
    return tensors;
  }

  #header() {
    const { size } = this.source;
    const bytes = Buffer.alloc(HEADER);
    this.source.read(bytes.subarray(0, size), 0);
    if (size < SMALLEST) {
      throw new WeigError('TOO_SMALL', `the file has ${size} bytes${kindOf(bytes)}`); // HDR-1
    }
    const magic = bytes.readUInt32BE(0); // HDR-2
    if (magic !== 0x57454947 && magic !== 0x47494557) {
      throw this.#wrong('BAD_MAGIC', 'magic', bytes.toString('hex', 0, 4) + kindOf(bytes));
    }
    this.#little = magic === 0x47494557; // NUM-1
    this.order = this.#little ? 'little' : 'big';
    const view = new DataView(bytes.buffer, bytes.byteOffset, HEADER);
    const version = view.getUint32(4, this.#little);
    this.#check(version === 1, 'BAD_VERSION', 'version', version, 'is not 1'); // HDR-3
    const count = this.#number(view, 8, 'tensor_count');
    const meta = this.#number(view, 16, 'meta_offset');
    const data = this.#number(view, 24, 'data_offset');
    const fileSize = this.#number(view, 32, 'file_size');
    const flags = Number(view.getBigUint64(40, this.#little) & 0xffffffffn);
    const reserved = view.getBigUint64(48) | view.getBigUint64(56);
    const end = fileSize - 8;
    const most = Math.floor((data - meta) / RECORD); // negative where the table starts past it
    const legal = fileSize % 8 === 0 && fileSize >= SMALLEST;
    this.#check(legal, 'BAD_FILE_SIZE', 'file_size', fileSize, 'is no size of a file'); // HDR-4
    this.#check(size >= fileSize, 'TRUNCATED', 'file_size', size, 'bytes are fewer'); // HDR-5
    this.#check(size <= fileSize, 'TRAILING_DATA', 'file_size', size, 'bytes are more'); // HDR-6
    this.#check(flags === 0, 'UNKNOWN_FLAG', 'flags', flags, 'is not known'); // HDR-7
    this.#check(reserved === 0n, 'BAD_RESERVED', 'reserved', reserved, 'is not zero'); // HDR-8
    this.#check(meta >= HEADER, 'BAD_META_TABLE', 'meta_offset', meta, 'is in the header'); // META-1
    this.#check(meta % 8 === 0, 'BAD_META_TABLE', 'meta_offset', meta, 'is no multiple of 8'); // META-2
    this.#check(data % 64 === 0, 'MISALIGNED', 'data_offset', data, 'is no multiple of 64'); // REGION-1
    this.#check(data <= end, 'BAD_DATA_REGION', 'data_offset', data, 'is past the end'); // REGION-2
    this.#check(count <= most, 'BAD_META_TABLE', 'tensor_count', count, 'records do not fit'); // META-3
    const tail = new DataView(new ArrayBuffer(8));
    this.source.read(new Uint8Array(tail.buffer), end);
    if (tail.getBigUint64(0, this.#little) !== SENTINEL) {
      throw new WeigError('BAD_SENTINEL', 'the file does not end with it', 'sentinel'); // TAIL-1
    }
    this.auxStart = meta + RECORD * count; // at most data
    this.dataOffset = data;
    this.end = end;
    return { count, meta };
  }

  /** @param {DataView} record */
  #tensor(record) {
    const nameOffset = this.#number(record, 0, 'name_offset');
    const code = record.getUint32(8, this.#little);
    const pad = record.getUint32(12, this.#little);
    const shapeOffset = this.#number(record, 16, 'shape_offset');
    const rank = this.#number(record, 24, 'shape_count');
    const offset = this.#number(record, 32, 'data_offset');
    const nbytes = this.#number(record, 40, 'data_size');
    this.#check(pad === 0, 'BAD_RESERVED', 'pad', pad, 'is not zero'); // META-4
    const entry = DTYPES[code];
    if (!entry) throw this.#wrong('BAD_DTYPE', 'dtype', `code ${code}`); // DTYPE-1
    const [dtype, size, unit] = entry;
    const name = this.#nameAt(nameOffset);
    const shape = this.#shapeAt(shapeOffset, rank);
    const fits = nbytes === this.#byteSize(shape, size);
    const aligned = offset % 64 === 0;
    this.#check(fits, 'BAD_DATA_SIZE', 'data_size', nbytes, 'is not that of the shape'); // SHAPE-5
    this.#check(aligned, 'MISALIGNED', 'data_offset', offset, 'is no multiple of 64'); // DATA-1
    const inside = offset >= this.dataOffset && offset <= this.end;
    this.#check(inside, 'BAD_DATA_RANGE', 'data_offset', offset, 'is outside'); // DATA-2, DATA-3
    const room = this.end - offset;
    this.#check(nbytes <= room, 'BAD_DATA_RANGE', 'data_size', nbytes, 'bytes do not fit'); // DATA-3
    this.#own(offset, nbytes);
    return new Tensor(this.source, this.order, { name, dtype, unit, shape, offset, nbytes });
  }

  /** @param {number} start */
  #nameAt(start) {
    const inside = start >= this.auxStart && start < this.dataOffset;
    this.#check(inside, 'BAD_NAME', 'name_offset', start, 'is not in the aux area'); // NAME-1
    const most = Math.min(this.#name.length, this.dataOffset - start);
    this.source.copy(this.#name, start, most);
    const length = this.#name.subarray(0, most).indexOf(0);
    this.#check(length >= 0, 'BAD_NAME', 'name_offset', most, 'bytes have no NUL'); // NAME-2, NAME-3
    this.#check(length > 0, 'BAD_NAME', 'name_offset', start, 'is an empty name'); // NAME-3
    const bytes = this.#name.subarray(0, length);
    const name = bytes.toString(); // U+FEFF is a character of a name, and stays
    const printable = !/[\x00-\x1f\x7f]/.test(name);
    this.#check(isUtf8(bytes), 'BAD_NAME', 'name_offset', start, 'is no UTF-8'); // NAME-4
    this.#check(printable, 'BAD_NAME', 'name_offset', start, 'has a control byte'); // NAME-5
    this.#own(start, length + 1);
    this.#heap -= 4 * length;
    return name;
  }

  /** @param {number} start @param {number} rank @returns {readonly number[]} */
  #shapeAt(start, rank) {
    const inside = start >= this.auxStart && start <= this.dataOffset;
    const most = Math.floor((this.dataOffset - start) / 8);
    this.#check(rank <= MOST_DIMS, 'BAD_SHAPE', 'shape_count', rank, 'is more than 64'); // SHAPE-1
    this.#check(inside, 'BAD_SHAPE', 'shape_offset', start, 'is not in the aux area'); // SHAPE-2
    this.#check(rank <= most, 'BAD_SHAPE', 'shape_count', rank, 'dimensions do not fit'); // SHAPE-2
    // Records may share an array: then they share ours too, else a small file made for it would
    // take 512 bytes of memory for each of its records.
    const key = secret(start, rank);
    const known = this.#shapes.get(key);
    if (known) return known;
    this.source.copy(new Uint8Array(this.#dims.buffer), start, 8 * rank); // SHAPE-3: bytes, copied
    /** @type {number[]} */
    const shape = [];
    for (let k = 0; k < rank; k++) shape.push(this.#number(this.#dims, 8 * k, 'shape'));
    Object.freeze(shape);
    this.#own(start, 8 * rank);
    this.#heap -= 64 + 16 * rank;
    this.#shapes.set(key, shape);
    return shape;
  }

  /**
   * The bytes that a shape takes. Zeros are looked for among the dimensions, and each product is
   * tested by division: a number past 2^53 would be rounded, not refused.
   * @param {readonly number[]} shape @param {number} size
   */
  #byteSize(shape, size) {
    let product = size;
    for (const dim of shape) {
      const factor = dim || 1; // SHAPE-4 holds also where another dimension is zero
      const fits = product <= Math.floor(MAX / factor);
      this.#check(fits, 'BAD_SHAPE', 'shape', dim, 'makes it too large'); // SHAPE-4
      product *= factor;
    }
    return shape.includes(0) ? 0 : product;
  }

  /** @param {number} start @param {number} size */
  #own(start, size) {
    if (this.deep && size > 0) this.owned.push([start, start + size]);
  }

  /** NUM-2. @param {DataView} view @param {number} position @param {string} field */
  #number(view, position, field) {
    const value = view.getBigUint64(position, this.#little);
    this.#check(value <= MAX_NUMBER, 'NUMBER_TOO_LARGE', field, value, 'is past 2^53 - 1');
    return Number(value);
  }

  /**
   * The funnel of the rules: no text is made for what is good.
   * @param {boolean} holds @param {ErrorCode} code @param {string} field
   * @param {number | bigint | undefined} value @param {string} words
   */
  #check(holds, code, field, value, words) {
    if (!holds) throw this.#wrong(code, field, `${value} ${words}`);
  }

  /** @param {ErrorCode} code @param {string} field @param {string} message */
  #wrong(code, field, message) {
    const where = this.#index < 0 ? 'header' : `meta[${this.#index}]`;
    return new WeigError(code, message, `${where}.${field}`);
  }
}

/** DATA-4, by comparing neighbours in the order of offsets (OPEN-5). @param {Tensor[]} tensors */
function checkOverlaps(tensors) {
  const sorted = tensors.filter(({ nbytes }) => nbytes > 0).sort((a, b) => a.offset - b.offset);
  for (const [i, two] of sorted.entries()) {
    const one = sorted[i - 1];
    if (!one || two.offset - one.offset >= one.nbytes) continue;
    if (two.offset !== one.offset || two.nbytes !== one.nbytes || two.dtype !== one.dtype) {
      const names = `"${escape(one.name)}" and "${escape(two.name)}"`;
      throw new WeigError('OVERLAP', `${names} share bytes`);
    }
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

/**
 * Files of other kinds that people open by mistake, by their first bytes (BAD_MAGIC).
 * @type {readonly (readonly [RegExp, string])[]}
 */
const FOREIGN = [
  [/^version https:\/\/git-lfs/, 'a git-LFS pointer: the file itself was not fetched'],
  [/^\s*</, 'HTML or XML: perhaps an error page that was saved'],
  [/^PK\x03\x04/, 'ZIP (PyTorch and npz files are)'],
  [/^GGUF/, 'GGUF'],
  [/^\x1f\x8b/, 'gzip'],
  [/^\x93NUMPY/, 'npy'],
  [/^.{8}\{"/s, 'safetensors'],
];

/** What a file of another kind is, for a message. @param {Buffer} header */
function kindOf(header) {
  const start = header.toString('latin1');
  const known = FOREIGN.find(([mark]) => mark.test(start));
  return known ? `; this is ${known[1]}` : '';
}

/**
 * Section 12. Aliases are looked at once, however many there are.
 * @param {Parser} parser @param {Tensor[]} tensors
 */
function verify({ source, owned }, tensors) {
  const memory = Buffer.alloc(CHUNK);
  let done = 0;
  owned.sort((a, b) => a[0] - b[0]); // the last one is the sentinel
  for (const [start, end] of owned) {
    scan(source, memory, done, start, 0, 'NONZERO_PADDING'); // PAD-1
    done = Math.max(done, end);
  }
  const seen = new Set();
  for (const { dtype, offset, nbytes } of tensors) {
    if (dtype !== 'BOOL' || seen.has(secret(offset, nbytes))) continue;
    seen.add(secret(offset, nbytes));
    scan(source, memory, offset, offset + nbytes, 1, 'BAD_BOOL'); // BOOL-1
  }
}

/**
 * Refuses a byte above `most` in a range of the file.
 * @param {Source} source @param {Buffer} memory @param {number} start @param {number} end
 * @param {number} most @param {ErrorCode} code
 */
function scan(source, memory, start, end, most, code) {
  for (let at = start; at < end; at += CHUNK) {
    const chunk = memory.subarray(0, Math.min(CHUNK, end - at));
    source.read(chunk, at);
    if (chunk.equals(ZEROS.subarray(0, chunk.length))) continue; // fast where all is zero
    for (let i = 0; i < chunk.length; i++) {
      const byte = /** @type {number} */ (chunk[i]);
      if (byte > most) throw new WeigError(code, `byte ${at + i} is ${byte}`);
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
    this.#source.descriptor(); // or CLOSED
    this.#byName ??= new Map(this.tensors.map((tensor) => [secret(tensor.name), tensor]));
    const tensor = this.#byName.get(secret(name));
    if (!tensor) throw new WeigError('NO_SUCH_TENSOR', `no tensor "${escape(name)}"`);
    return tensor;
  }

  /** Refuses with MODIFIED where the open file, whatever its name, was written to since. */
  checkUnmodified() {
    this.#source.checkUnmodified();
  }

  /** Closes the descriptor. In mode 'lazy' no more bytes can be read; what was read stays. */
  close() {
    this.#source.close();
  }
}
