import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The controller that the development server and the preview hand requests on to.
const controller = process.env["FDN_CONTROLLER"] ?? "http://127.0.0.1:8600";
const proxy = Object.fromEntries(
  ["/v1", "/api", "/healthz", "/readyz"].map((path) => [path, { target: controller }]),
);

// What the controller sends with every file of the console; the preview does the same, so that tests meet the policy.
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@": fileURLToPath(new URL("src", import.meta.url)) } },
  server: { proxy },
  preview: { proxy, headers: { "content-security-policy": policy } },
  build: {
    target: "es2023",
    // Nothing becomes a data: URL; the policy forbids them.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: true,
    // The console, and the search of the documentation, which is no part of it.
    rolldownOptions: { input: ["index.html", "src/docs/main.ts"] },
  },
});
