// The worked example of section 19, and what the conformance suite cannot see from outside.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WeigError, WeigFile } from '../index.js';

const LITTLE = `
  4749455701000000 0200000000000000 4000000000000000 c000000000000000
  1001000000000000 0000000000000000 0000000000000000 0000000000000000
  b000000000000000 0200000000000000 a000000000000000 0100000000000000
  c000000000000000 0600000000000000
  b200000000000000 0000000000000000 a800000000000000 0100000000000000
  0001000000000000 0800000000000000
  0300000000000000 0200000000000000 6200770000000000 0000000000000000
  803f004080bf`;
const BIG = `
  5745494700000001 0000000000000002 0000000000000040 00000000000000c0
  0000000000000110 0000000000000000 0000000000000000 0000000000000000
  00000000000000b0 0000000200000000 00000000000000a0 0000000000000001
  00000000000000c0 0000000000000006
  00000000000000b2 0000000000000000 00000000000000a8 0000000000000001
  0000000000000100 0000000000000008
  0000000000000003 0000000000000002 6200770000000000 0000000000000000
  3f804000bf80`;

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'weig-js-'));
after(() => fs.rmSync(folder, { recursive: true }));

/** @param {'little' | 'big'} order */
function example(order) {
  const file = Buffer.alloc(272);
  const start = (order === 'big' ? BIG : LITTLE).replace(/\s/g, '');
  assert.equal(file.write(start, 'hex'), 198);
  const tail =
    order === 'big' ? '3f800000c000000057454947454e4421' : '0000803f000000c021444e4547494557';
  file.write(tail, 256, 'hex');
  return file;
}

/** @param {Uint8Array} bytes */
function write(bytes) {
  const name = path.join(folder, 'file.weig');
  fs.writeFileSync(name, bytes);
  return name;
}

/** @param {() => unknown} action @param {string} code */
function refuses(action, code) {
  assert.throws(action, (error) => {
    assert.ok(error instanceof WeigError, String(error));
    assert.equal(error.code, code, error.message);
    return true;
  });
}

/** @param {string} name */
const deep = (name) => new WeigFile(name, { level: 'deep' }).close();

for (const order of /** @type {const} */ (['little', 'big'])) {
  for (const mode of /** @type {const} */ (['lazy', 'read'])) {
    test(`the worked example, ${order} endian, ${mode}`, () => {
      const file = new WeigFile(write(example(order)), { mode, level: 'deep' });
      assert.equal(file.byteOrder, order);
      assert.deepEqual(
        file.tensors.map(({ name, dtype, shape, nbytes }) => [name, dtype, shape, nbytes]),
        [
          ['b', 'BF16', [3], 6],
          ['w', 'F32', [2], 8],
        ],
      );
      assert.equal(Buffer.from(file.get('b').bytes()).toString('hex'), '803f004080bf');
      assert.equal(Buffer.from(file.get('b').bytes('big')).toString('hex'), '3f804000bf80');
      assert.deepEqual([...new Float32Array(file.get('w').bytes().buffer)], [1, -2]);
      file.close();
      refuses(() => file.get('w'), 'CLOSED');
    });
  }
}

test('one byte changed', () => {
  /** @type {[number, string, string?][]} */
  const changes = [
    [0, '00', 'BAD_MAGIC'],
    [4, '02', 'BAD_VERSION'],
    [8, '03', 'BAD_META_TABLE'],
    [16, '3c', 'BAD_META_TABLE'],
    [24, 'c8', 'MISALIGNED'],
    [32, '18', 'TRUNCATED'],
    [32, '08', 'TRAILING_DATA'],
    [32, '09', 'BAD_FILE_SIZE'],
    [40, '01', 'UNKNOWN_FLAG'],
    [44, 'ff'],
    [47, 'ff'],
    [55, '01', 'BAD_RESERVED'],
    [64, '00', 'BAD_NAME'],
    [72, '13', 'BAD_DTYPE'],
    [76, '01', 'BAD_RESERVED'],
    [80, '00', 'BAD_SHAPE'],
    [88, '41', 'BAD_SHAPE'],
    [96, '40', 'BAD_DATA_RANGE'],
    [97, '01', 'BAD_DATA_RANGE'],
    [104, '07', 'BAD_DATA_SIZE'],
    [111, '80', 'NUMBER_TOO_LARGE'],
    [160, '00', 'BAD_DATA_SIZE'],
    [166, '1f', 'BAD_SHAPE'],
    [166, '20', 'NUMBER_TOO_LARGE'],
    [176, 'ff', 'BAD_NAME'],
    [176, '1b', 'BAD_NAME'],
    [176, '77', 'DUPLICATE_NAME'],
    [177, '62'],
    [180, '01', 'NONZERO_PADDING'],
    [200, '01', 'NONZERO_PADDING'],
    [264, '20', 'BAD_SENTINEL'],
  ];
  for (const [at, hex, code] of changes) {
    const bytes = example('little');
    bytes.write(hex, at, 'hex');
    const name = write(bytes);
    if (code) refuses(() => deep(name), code);
    else deep(name);
  }
});

test('every cut', () => {
  for (let n = 0; n < 272; n++) {
    const name = write(example('big').subarray(0, n));
    refuses(() => deep(name), n < 72 ? 'TOO_SMALL' : 'TRUNCATED');
  }
});

test('no regular file', async () => {
  refuses(() => deep(folder), 'NOT_REGULAR_FILE');
  refuses(() => deep('/dev/zero'), 'NOT_REGULAR_FILE');
  refuses(() => deep(path.join(folder, 'missing')), 'IO');
  const fifo = path.join(folder, 'fifo');
  execFileSync('mkfifo', [fifo]);
  refuses(() => deep(fifo), 'NOT_REGULAR_FILE');
  const server = net.createServer();
  const socket = path.join(folder, 'socket');
  await new Promise((resolve) => server.listen(socket, () => resolve(undefined)));
  refuses(() => deep(socket), 'NOT_REGULAR_FILE');
  server.close();
});

test('a change of the file is seen, and a copy does not mind', () => {
  const name = write(example('big'));
  const lazy = new WeigFile(name);
  const read = new WeigFile(name, { mode: 'read' });
  const moved = path.join(folder, 'moved.weig');
  fs.renameSync(name, moved);
  fs.writeFileSync(name, 'another file, which took the name');
  lazy.checkUnmodified();
  refuses(() => lazy.get('\x1b[2J'), 'NO_SUCH_TENSOR');
  fs.appendFileSync(moved, 'x');
  refuses(() => lazy.checkUnmodified(), 'MODIFIED');
  refuses(() => lazy.get('w').bytes(), 'MODIFIED');
  fs.truncateSync(moved, 100);
  refuses(() => lazy.get('w').bytes(), 'TRUNCATED');
  lazy.close();
  read.close();
  assert.equal(Buffer.from(read.tensors[1]?.bytes() ?? []).toString('hex'), '0000803f000000c0');
});

test('the adapter answers each line', () => {
  const name = write(example('big'));
  const input = `hello\t1\nload\t7\t${name}\tdata=hex\tnew=key\nload\t8\t${folder}\nsave\t9\ncheck\t10\n`;
  const adapter = fileURLToPath(new URL('../adapter.js', import.meta.url));
  const { stdout } = spawnSync(process.execPath, [adapter], { input, encoding: 'utf8' });
  const answers = stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.equal(answers.length, 5);
  assert.equal(answers[0].protocol, 1);
  assert.deepEqual(answers[1], {
    id: '7',
    status: 'accepted',
    byte_order: 'big',
    count: 2,
    tensors: [
      { name: 'b', dtype: 'BF16', shape: [3], nbytes: 6, data: '803f004080bf' },
      { name: 'w', dtype: 'F32', shape: [2], nbytes: 8, data: '0000803f000000c0' },
    ],
  });
  assert.equal(answers[2].error, 'NOT_REGULAR_FILE');
  assert.equal(answers[3].status, 'unsupported');
  assert.equal(answers[4].status, 'unsupported');
});
