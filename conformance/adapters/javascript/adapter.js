// Answers the requests of the conformance suite: a line in, a JSON object on one line out.

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { WeigError, WeigFile, escape } from './index.js';

const MOST_HEX = 4096;
const BATCH = 1 << 16;

/** @typedef {import('./index.js').Tensor} Tensor */

/**
 * Writes to standard output at once: an answer may not wait in a buffer.
 * @param {string} text
 */
function write(text) {
  const bytes = Buffer.from(text);
  for (let done = 0; done < bytes.length;) {
    try {
      done += fs.writeSync(1, bytes, done);
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1); // a full pipe: 1 ms
    }
  }
}

/** @param {Record<string, unknown>} answer */
function say(answer) {
  write(`${JSON.stringify(answer)}\n`);
}

/**
 * The members that tell a tensor's canonical bytes.
 * @param {Tensor} tensor @param {string} data
 */
function content(tensor, data) {
  if (data === 'hex' && tensor.nbytes <= MOST_HEX) {
    return { data: Buffer.from(tensor.bytes('little')).toString('hex') };
  }
  const hash = createHash('sha256');
  for (const chunk of tensor.chunks('little')) hash.update(chunk);
  return { sha256: hash.digest('hex') };
}

/** @param {string} id @param {string} path @param {Map<string, string>} options */
function load(id, path, options) {
  const data = options.get('data') ?? 'none';
  const level = options.get('level') ?? 'open';
  const via = options.get('via') ?? 'lazy';
  if (via === 'mmap') {
    say({ id, status: 'unsupported', message: 'Node has no mmap' });
    return;
  }
  if (
    !['none', 'sha256', 'hex'].includes(data) ||
    (level !== 'open' && level !== 'deep') ||
    (via !== 'lazy' && via !== 'read')
  ) {
    say({ id, status: 'unsupported', message: 'a value of a key is not known' });
    return;
  }
  const file = new WeigFile(path, { mode: via, level });
  try {
    // All that can fail comes before the first byte of the answer. Aliases are hashed once.
    /** @type {Map<string, ReturnType<typeof content>>} */
    const contents = new Map();
    /** @param {Tensor} tensor */
    const key = (tensor) => `${tensor.offset} ${tensor.nbytes} ${tensor.dtype}`;
    if (data !== 'none') {
      for (const tensor of file.tensors) {
        if (!contents.has(key(tensor))) contents.set(key(tensor), content(tensor, data));
      }
    }
    let text = `{"id":${JSON.stringify(id)},"status":"accepted","byte_order":"${file.byteOrder}",`;
    text += `"count":${file.tensors.length},"tensors":[`;
    for (const [i, tensor] of file.tensors.entries()) {
      const { name, dtype, shape, nbytes } = tensor;
      text += i > 0 ? ',' : '';
      text += JSON.stringify({ name, dtype, shape, nbytes, ...contents.get(key(tensor)) });
      if (text.length > BATCH) {
        write(text);
        text = '';
      }
    }
    write(`${text}]}\n`);
  } finally {
    file.close();
  }
}

/** @param {string} line */
function answer(line) {
  const [verb, id = '', path, ...pairs] = line.split('\t');
  try {
    if (verb === 'hello') {
      say({
        protocol: 1,
        loader: 'weig-js',
        version: '1.0.0',
        language: 'javascript',
        spec: ['1'],
        profiles: ['core', 'data', 'big-endian', 'deep'],
      });
    } else if (verb === 'load' && path !== undefined) {
      const options = pairs.map(
        (pair) => /** @type {[string, string]} */ (pair.split(/=(.*)/s, 2)),
      );
      load(id, path, new Map(options));
    } else {
      say({ id, status: 'unsupported', message: 'no such request here' });
    }
  } catch (error) {
    if (error instanceof WeigError && error.code === 'UNSUPPORTED') {
      say({ id, status: 'unsupported', message: error.message });
    } else if (error instanceof WeigError) {
      // the only way to a "rejected"
      const { code, message, field } = error;
      say({ id, status: 'rejected', error: code, message, ...(field && { field }) });
    } else {
      // a fault of ours, and said to be one
      console.error(error);
      say({ id, status: 'internal', message: escape(String(error)) });
    }
  }
}

let rest = '';
process.stdin.setEncoding('utf8');
for await (const chunk of process.stdin) {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop() ?? '';
  lines.forEach(answer);
}
if (rest) answer(rest);
