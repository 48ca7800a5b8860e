// Where the console is served: by the controller itself if it was built in, else by Vite's preview in front of it, which `FDN_CONSOLE=dist` asks for
// also where one was: a change of the console is then seen without building the program anew.
import { fileURLToPath } from "node:url";

export async function serve(controller) {
  const built = process.env.FDN_CONSOLE === "dist";
  const page = await (await fetch(`${controller}/`)).text();
  if (!built && page.includes('<div id="root">')) return { url: controller, stop: async () => undefined };
  process.env.FDN_CONTROLLER = controller;
  const { preview } = await import("vite");
  const server = await preview({ root: fileURLToPath(new URL("..", import.meta.url)), logLevel: "warn", preview: { host: "127.0.0.1", port: 0 } });
  const { port } = server.httpServer.address();
  console.log(`note: ${built ? "web/dist" : "this program was built without the console; it"} is served by Vite's preview`);
  return { url: `http://127.0.0.1:${port}`, stop: () => server.close() };
}
