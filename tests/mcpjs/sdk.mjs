// The official TypeScript client against the MCP door: over streamable HTTP and over stdio. A spec on standard input,
// what was seen as JSON on standard output. No judgement here: the Python tests judge.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

let text = "";
for await (const chunk of process.stdin) text += chunk;
const spec = JSON.parse(text);

const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: {} } });
const seen = { progress: "", asked: [], updated: [] };
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
  seen.asked.push(params.message);
  return { action: "accept", content: spec.elicit };
});
client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => { seen.updated.push(params.uri); });
await client.connect(
  spec.command
    ? new StdioClientTransport({ command: spec.command, args: ["mcp", "--url", spec.url], env: process.env })
    : new StreamableHTTPClientTransport(new URL(`${spec.url}/mcp`)),
);
seen.server = client.getServerVersion();
seen.instructions = client.getInstructions();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
const onprogress = ({ message }) => { seen.progress += message; };
const ask = (message, thread) =>
  client.callTool({ name: "ask", arguments: { message, thread } }, undefined, { onprogress, resetTimeoutOnProgress: true });
seen.first = await ask(spec.first, spec.thread);
await client.subscribeResource({ uri: `hermes://threads/${spec.thread}` });
seen.second = await ask(spec.second, spec.thread);
seen.transcript = (await client.readResource({ uri: `hermes://threads/${spec.thread}` })).contents[0].text;
seen.prompts = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
const abort = new AbortController();
seen.cancelled = await client
  .callTool({ name: "ask", arguments: { message: spec.slow, thread: `${spec.thread}-slow` } }, undefined, {
    signal: abort.signal,
    onprogress: ({ message }) => { if (message.includes("begun")) abort.abort("enough"); },
  })
  .then(() => "answered", (error) => String(error));
await client.close();
console.log(JSON.stringify(seen));
