// A CopilotKit runtime on a free loopback port, as an application's server has it, with agents that are gateways.
//
// argument: {agents: {name: {url, headers?, tools?: {name: metadata}}}}; stdout: {url}, one line. Runs until SIGTERM or
// until stdin ends, so that it never outlives the tests.
// `tools` is how a runtime tells what its page cannot: CopilotKit's page sends no `metadata` with a tool.

import { createServer } from "node:http";
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";

const BASE = "/api/copilotkit";
const spec = JSON.parse(process.argv[2]);

const agents = {};
for (const [name, { url, headers = {}, tools = {} }] of Object.entries(spec.agents)) {
  const agent = new HttpAgent({ url, headers });
  agent.use((input, next) =>
    next.run({
      ...input,
      tools: input.tools.map((tool) => (tools[tool.name] ? { ...tool, metadata: tools[tool.name] } : tool)),
    }),
  );
  agents[name] = agent;
}

const server = createServer(createCopilotNodeListener({ runtime: new CopilotRuntime({ agents }), basePath: BASE }));
server.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${server.address().port}${BASE}` }));
});
process.on("SIGTERM", () => process.exit(0));
process.stdin.on("end", () => process.exit(0)).resume();
