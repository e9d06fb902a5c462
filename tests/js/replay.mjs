// Serves recorded SSE text to a real HttpAgent and prints its verdict.
//
// stdin: one case or a list: {version: "1"|"0", frames, messages?, state?}
// stdout: one verdict or a list: {accepted, error?, warnings, events, messages, state}. `events` are their types.

import { createServer } from "node:http";
import { captureConsole, finish, loadClient, readStdin } from "./lib.mjs";

let warnings = [];
captureConsole((warning) => warnings.push(warning));

const input = await readStdin();
const cases = Array.isArray(input) ? input : [input];

const server = createServer((request, response) => {
  request.resume();
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.end(cases[Number(request.url.slice(1))].frames);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const verdicts = [];
for (const [number, each] of cases.entries()) {
  const { HttpAgent } = await loadClient(each.version);
  const agent = new HttpAgent({
    url: `http://127.0.0.1:${server.address().port}/${number}`,
    threadId: "t",
    initialMessages: each.messages ?? [],
    initialState: each.state ?? {},
  });
  warnings = [];
  const events = [];
  let error;
  try {
    await agent.runAgent({ runId: "r" }, { onEvent: ({ event }) => void events.push(event.type) });
  } catch (caught) {
    error = `${caught?.name ?? "Error"}: ${caught?.message ?? caught}`;
  }
  // A rejection that nobody awaits surfaces a tick later.
  await new Promise((resolve) => setImmediate(resolve));
  verdicts.push({
    accepted: error === undefined,
    ...(error !== undefined && { error }),
    warnings,
    events,
    messages: agent.messages,
    state: agent.state,
  });
}
server.close();
process.stdout.write(JSON.stringify(Array.isArray(input) ? verdicts : verdicts[0]) + "\n");
finish();
