// `npm start`: the runtime and the page. HERMES_URL says where the gateway is, AGUI_API_KEY its key, PORT the page's port.
import { createServer } from "vite";
import { startRuntime } from "./runtime.mjs";

const runtime = await startRuntime(0);
process.env.RUNTIME_URL = `http://127.0.0.1:${runtime.address().port}`;
const page = await createServer({ server: { port: Number(process.env.PORT ?? 5173), host: "127.0.0.1" } });
await page.listen();
console.log(`Open ${page.resolvedUrls.local[0]}          through CopilotKit's runtime`);
console.log(`  or ${page.resolvedUrls.local[0]}?direct   straight to the gateway`);
