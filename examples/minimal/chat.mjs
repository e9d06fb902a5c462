// node chat.mjs "What is in this directory?"      HERMES_URL, AGUI_API_KEY and THREAD may be set.
import { createInterface } from "node:readline/promises";
import { HttpAgent } from "@ag-ui/client";

const { HERMES_URL = "http://127.0.0.1:8650", AGUI_API_KEY, THREAD } = process.env;
const headers = AGUI_API_KEY ? { Authorization: `Bearer ${AGUI_API_KEY}` } : {};
const agent = new HttpAgent({ url: `${HERMES_URL}/agui`, headers, threadId: THREAD ?? crypto.randomUUID() });

agent.subscribe({
  onTextMessageContentEvent: ({ event }) => void process.stdout.write(event.delta),
  onTextMessageEndEvent: () => void process.stdout.write("\n"),
  onToolCallEndEvent: ({ toolCallName, toolCallArgs }) => console.error(`· ${toolCallName} ${JSON.stringify(toolCallArgs)}`),
  onRunErrorEvent: ({ event }) => {
    console.error(event.message);
    process.exitCode = 1;
  },
});

agent.addMessage({ id: crypto.randomUUID(), role: "user", content: process.argv[2] ?? "Hello" });
await agent.runAgent();
while (agent.pendingInterrupts.length) {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const resume = [];
  for (const { id, message, metadata } of agent.pendingInterrupts) {
    const { kind, choices = [] } = metadata?.hermes ?? {};
    const answer = await terminal.question(`${message} [${choices.join(", ")}] `);
    resume.push({ interruptId: id, status: "resolved", payload: kind === "clarify" ? { answer } : { choice: answer } });
  }
  terminal.close();
  await agent.runAgent({ resume });
}
