// What the generated JavaScript parser says of files: the second opinion on spec/weig.ksy.
//   node tests/js/oracle.mjs < paths
// Reads paths, one a line; prints a line of JSON for each, as spec/generated/README.md tells.
// Needs `npm ci` in tools/.
import fs from "node:fs";
import { createRequire } from "node:module";

const here = new URL("../../", import.meta.url);
const require = createRequire(new URL("tools/package.json", here));
const KaitaiStream = require("kaitai-struct/KaitaiStream");
const Weig = loadGenerated(new URL("spec/generated/javascript/Weig.js", here));
const MOST_PAIRS = 2000; // records; `pairs` takes quadratic time

// Generated code passes the path of the failed check last, but the runtime drops it.
for (const name of Object.keys(KaitaiStream).filter((name) => name.startsWith("Validation"))) {
  KaitaiStream[name] = class extends KaitaiStream[name] {
    constructor(...args) {
      super(...args);
      this.srcPath = args.at(-1);
    }
  };
}

// The generated module asks for its runtime by name: it is given the one of tools/.
function loadGenerated(url) {
  const module = { exports: {} };
  new Function("exports", "require", fs.readFileSync(url, "utf8"))(module.exports, require);
  return module.exports.Weig;
}

function deep(root) {
  try {
    root.body.tensors.forEach((t) => t.bools);
    return null;
  } catch (error) {
    if (error.srcPath) return error.srcPath;
    throw error;
  }
}

function answer(path) {
  try {
    const bytes = Uint8Array.from(fs.readFileSync(path)); // small buffers of Node share memory
    const root = new Weig(new KaitaiStream(bytes.buffer));
    const tensors = root.body.tensors.map((t) => [
      t.name,
      t.dtype,
      t.shape.dims.map((dim) => dim.len),
      t.ofsData,
      t.lenData,
    ]);
    root.body.tensors.forEach((t) => t.nameChars);
    if (tensors.length <= MOST_PAIRS) root.body.pairs;
    return { accept: true, tensors, deep: deep(root) };
  } catch (error) {
    if (error.srcPath) return { accept: false, check: error.srcPath };
    if (error instanceof KaitaiStream.EOFError || error.code) return { accept: false, check: null };
    throw error; // a bug: the test sees the exit status
  }
}

for (const path of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  console.log(JSON.stringify(answer(path)));
}
