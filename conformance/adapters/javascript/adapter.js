// Answers the requests of the conformance suite: a line in, a JSON object on one line out.

import { createHash } from 'node:crypto';
import readline from 'node:readline';
import { WeigError, WeigFile, escape } from './index.js';

const MOST_HEX = 4096;

/** @typedef {import('./index.js').Tensor} Tensor */

/** @param {Record<string, unknown>} answer */
function say(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
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

/** @param {string} id @param {WeigFile} file @param {string} data */
function accept(id, file, data) {
  /** @type {Map<string, ReturnType<typeof content>>} */
  const contents = new Map();
  const { byteOrder: byte_order, tensors: all } = file;
  const tensors = all.map((tensor) => {
    const { name, dtype, shape, nbytes, offset } = tensor;
    const key = `${offset} ${nbytes} ${dtype}`; // aliases are hashed once
    if (data !== 'none' && !contents.has(key)) contents.set(key, content(tensor, data));
    return { name, dtype, shape, nbytes, ...contents.get(key) };
  });
  say({ id, status: 'accepted', byte_order, count: all.length, tensors });
}

/**
 * What the last `open` left open for `check` and `access`.
 * @type {WeigFile | undefined}
 */
let held;

/** @param {string} line */
function answer(line) {
  const [verb, id = '', ...rest] = line.split('\t');
  const path = verb === 'load' || verb === 'open' ? rest.shift() : undefined;
  const options = new Map(
    rest.map((pair) => /** @type {[string, string]} */ (pair.split(/=(.*)/s, 2))),
  );
  const data = options.get('data') ?? 'none';
  const level = options.get('level') ?? 'open';
  const mode = options.get('via') ?? 'lazy';
  try {
    if (verb === 'hello') {
      say({
        protocol: 1,
        loader: 'weig-js',
        version: '1.0.0',
        language: 'javascript',
        spec: ['1'],
        profiles: ['core', 'data', 'big-endian', 'deep', 'held-read'],
      });
    } else if (
      !['none', 'sha256', 'hex'].includes(data) ||
      (level !== 'open' && level !== 'deep') ||
      (mode !== 'lazy' && mode !== 'read')
    ) {
      say({ id, status: 'unsupported', message: 'no such value of a key here (Node has no mmap)' });
    } else if (path !== undefined) {
      held?.close();
      held = undefined;
      const file = new WeigFile(path, { mode, level });
      try {
        accept(id, file, data);
        if (verb === 'open') held = file;
      } finally {
        if (!held) file.close();
      }
    } else if (verb === 'check' && held) {
      held.checkUnmodified();
      say({ id, status: 'unmodified' });
    } else if (verb === 'access' && held) {
      accept(id, held, data);
    } else {
      say({ id, status: 'unsupported', message: 'no such request here' });
    }
  } catch (error) {
    if (error instanceof WeigError) {
      // the only way to a "rejected"
      const { code, message, field } = error;
      const status = code === 'UNSUPPORTED' ? 'unsupported' : 'rejected';
      say({ id, status, error: code, message, ...(field && { field }) });
    } else {
      // a fault of ours, and said to be one
      console.error(error);
      say({ id, status: 'internal', message: escape(String(error)) });
    }
  }
}

// Answers are written at once: on a pipe, writing is synchronous (on Windows in order, at least).
for await (const line of readline.createInterface({ input: process.stdin })) answer(line);
