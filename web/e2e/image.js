// A container image of one layer, as `docker save` writes it, small enough to be made here.
import { createHash } from "node:crypto";

// One file of a tar archive (POSIX.1-1988): its header and its bytes, in blocks of 512.
function entry(name, bytes) {
  const header = Buffer.alloc(512);
  const put = (text, at) => header.write(text, at, "latin1");
  const octal = (value, digits) => `${value.toString(8).padStart(digits, "0")}\0`;
  put(name, 0);
  put(octal(0o644, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(bytes.length, 11), 124);
  put(octal(0, 11), 136);
  put("        ", 148);
  put("0", 156);
  put("ustar\x0000", 257);
  put(`${octal(header.reduce((sum, byte) => sum + byte, 0), 6)} `, 148);
  return Buffer.concat([header, bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}

const END = Buffer.alloc(1024);

export function image(architecture) {
  const layer = Buffer.concat([entry("hello", Buffer.from("hello")), END]);
  const layers = [`sha256:${createHash("sha256").update(layer).digest("hex")}`];
  const config = { architecture, os: "linux", config: { Cmd: ["/hello"] }, rootfs: { type: "layers", diff_ids: layers } };
  const files = {
    "config.json": Buffer.from(JSON.stringify(config)),
    "layer.tar": layer,
    "manifest.json": Buffer.from(JSON.stringify([{ Config: "config.json", RepoTags: [], Layers: ["layer.tar"] }])),
  };
  return Buffer.concat([...Object.entries(files).map(([name, bytes]) => entry(name, bytes)), END]);
}
