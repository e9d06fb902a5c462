import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Both ways go through this page's own origin and keep it (`changeOrigin`), so that the gateway needs no
// `agui.cors_origins`.
const to = (target) => ({ target, changeOrigin: false });

export default defineConfig(() => ({
  plugins: [react()],
  server: {
    proxy: {
      "/api/copilotkit": to(process.env.RUNTIME_URL ?? "http://127.0.0.1:4000"),
      "/agui": to(process.env.HERMES_URL ?? "http://127.0.0.1:8650"),
    },
  },
}));
