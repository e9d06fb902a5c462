import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Both ways go through this page's own origin, so that the gateway needs no `agui.cors_origins`.
export default defineConfig(() => ({
  plugins: [react()],
  server: {
    proxy: {
      "/api/copilotkit": process.env.RUNTIME_URL ?? "http://127.0.0.1:4000",
      "/agui": process.env.HERMES_URL ?? "http://127.0.0.1:8650",
    },
  },
}));
