// A network of its own for the tests: `fdn up` in a folder and on ports of its own, ended when the tests are.
import { spawn } from "node:child_process";
import { access, mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const PROGRAM = process.env.FDN_PROGRAM ?? fileURLToPath(new URL("../../target/release/fdn", import.meta.url));
const NODES = ["127.0.1.1", "127.0.1.2", "127.0.2.1", "127.0.2.2", "127.0.3.1", "127.0.3.2"];

function free(port, host) {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", () => resolve(null));
    server.listen(port, host, () => {
      const got = server.address().port;
      server.close(() => resolve(got));
    });
  });
}

const taken = new Set();

// A port that is free at every one of the addresses, below those that the system gives to outgoing connections, one of which could take it
// between now and the start.
async function port(hosts = ["127.0.0.1"]) {
  for (let tries = 0; tries < 200; tries += 1) {
    const candidate = 18_000 + Math.floor(Math.random() * 14_000);
    if (taken.has(candidate)) continue;
    const all = await Promise.all(hosts.map((host) => free(candidate, host)));
    if (!all.every((each) => each !== null)) continue;
    taken.add(candidate);
    return candidate;
  }
  throw new Error("no port is free at all addresses");
}

// Starts a network. `url` is where its API is, `password` the admin's, `stop` ends exactly this one.
export async function start() {
  await access(PROGRAM).catch(() => {
    throw new Error(`${PROGRAM} is not there; run 'make build' first, or name another program in FDN_PROGRAM`);
  });
  const folder = await mkdtemp(join(tmpdir(), "fdn-console-"));
  const listen = `127.0.0.1:${await port()}`;
  const args = [
    "up", "--color", "never", "--data-dir", join(folder, "data"), "--listen", listen,
    "--dns", `127.0.0.1:${await port()}`, "--dns-admin", `127.0.0.1:${await port()}`,
    "--gateway-port", String(await port(NODES)), "--admin-port", String(await port(NODES)), "--no-docker",
  ];
  const env = { ...process.env, HOME: folder, XDG_CONFIG_HOME: join(folder, "config"), XDG_DATA_HOME: join(folder, "share") };
  const child = spawn(PROGRAM, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const stop = async () => {
    child.kill("SIGINT");
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const text = await ready(child);
    const password = /\(admin \/ (\S+?),/.exec(text)?.[1];
    if (password === undefined) throw new Error(`the first password was not printed:\n${text}`);
    return { url: `http://${listen}`, password, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function ready(child) {
  return new Promise((resolve, reject) => {
    let text = "";
    const take = (piece) => {
      text += piece;
      if (/^ready in /m.test(text)) resolve(text);
    };
    child.stdout.setEncoding("utf8").on("data", take);
    child.stderr.setEncoding("utf8").on("data", take);
    child.once("exit", (code) => reject(new Error(`fdn up ended with ${code}:\n${text}`)));
  });
}
