// The npm build of the Kaitai Struct compiler: the same compiler, translated to JavaScript. It cannot
// generate code that writes.
import ksc from "kaitai-struct-compiler";

export const can = (output) => output.mode !== "write";

/** The code of every output, in their order. `spec` is the parsed weig.ksy. */
export async function compile(spec, outputs) {
  const texts = [];
  for (const { target, mode } of outputs) {
    const [text] = Object.values(await ksc.compile(target, spec, null, mode === "debug"));
    texts.push(finish(target, text));
  }
  return texts;
}

// This build cannot be told the name of a Go package and writes none: the line goes before the imports.
function finish(target, text) {
  if (target !== "go") return text;
  const parts = text.split("\nimport (\n");
  if (parts.length !== 2 || /^package /m.test(text)) {
    throw new Error("the compiler's Go output looks different: see finish() in tools/ksc/npm.mjs");
  }
  return parts.join("\npackage weig\n\nimport (\n");
}
