// The server-side half: CopilotKit's runtime, with the gateway as its agent. The gateway's key stays here.
import { createServer } from "node:http";
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";

const gateway = process.env.HERMES_URL ?? "http://127.0.0.1:8650";
const key = process.env.AGUI_API_KEY;

export function startRuntime(port) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const runtime = new CopilotRuntime({ agents: { hermes: new HttpAgent({ url: `${gateway}/agui`, headers }) } });
  const server = createServer(createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" }));
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}
