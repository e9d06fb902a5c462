import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const out = "../agui_adapter/web";

/** Each text file again as .br and .gz beside it: the server sends what the browser takes, and compresses nothing. */
function precompressed(): Plugin {
  return {
    name: "precompressed",
    apply: "build",
    closeBundle() {
      for (const entry of readdirSync(out, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|svg|html)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        const bytes = readFileSync(path);
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
        const quality = { [constants.BROTLI_PARAM_QUALITY]: 11 };
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: quality }));
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), precompressed()],
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // data: URLs would need room in the content security policy
    modulePreload: { polyfill: false }, // it is an inline script
    chunkSizeWarningLimit: 1200,
  },
  // `npm run dev` beside a running gateway, which sees this page's own address (`changeOrigin`) and so one origin.
  server: {
    proxy: Object.fromEntries(
      ["/agui", "/files", "/health"].map((path) => [path, { target: "http://127.0.0.1:8650", changeOrigin: false }]),
    ),
  },
});
