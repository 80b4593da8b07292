// The JVM build of the Kaitai Struct compiler, which can do all that is asked for here.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const JARS = path.join(path.dirname(fileURLToPath(import.meta.url)), "..", "..", ".build", "ksc");
const FLAGS = { "": [], debug: ["--debug"], write: ["--read-write"] };

export const FETCH = "mvn -q -B -f tools/ksc/pom.xml package";

/** Whether it has been fetched. */
export function ready() {
  return fs.existsSync(JARS) && fs.readdirSync(JARS).some((name) => name.startsWith("kaitai-struct-compiler"));
}

/** The code of every output, in their order. */
export function compile(ksy, outputs) {
  const made = new Map();
  for (const mode of new Set(outputs.map((output) => output.mode))) {
    const wanted = outputs.filter((output) => output.mode === mode);
    const files = run(ksy, FLAGS[mode], wanted.map((output) => output.target));
    for (const output of wanted) made.set(output, files.get(output.file));
  }
  return outputs.map((output) => made.get(output));
}

// Every file that the compiler writes in one run, by its name: the folders depend on the targets.
function run(ksy, flags, targets) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "weig-ksc-"));
  try {
    const languages = targets.flatMap((target) => ["--target", target]);
    const done = spawnSync(
      "java",
      ["-XX:TieredStopAtLevel=1", "-cp", path.join(JARS, "*"), "io.kaitai.struct.JavaMain"]
        .concat(flags, languages, ["--go-package", "weig", "--outdir", folder, "--", ksy]),
      { stdio: ["ignore", "inherit", "inherit"] },
    );
    if (done.error) throw done.error;
    if (done.status !== 0) throw new Error(`the JVM build of the compiler failed on ${ksy}`);
    const files = fs.readdirSync(folder, { recursive: true, withFileTypes: true });
    return new Map(
      files
        .filter((entry) => entry.isFile())
        .map((entry) => [entry.name, fs.readFileSync(path.join(entry.parentPath ?? entry.path, entry.name), "utf8")]),
    );
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}
