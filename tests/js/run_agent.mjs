// Runs the official HttpAgent against a server and prints what it delivered, as JSON lines.
//
// stdin: {version: "1"|"0", url, headers?, threadId, runs: [{runId?, messages?, tools?, context?, state?,
//         forwardedProps?, resume?, abortAfter?: {events}}]}. All runs share one agent; `messages` are appended to it.
// stdout: {run, event} | {run, warning} | {run, failed, status?, name?} | {run, done, messages, state, interrupts}
// Exit code 0 when the script itself worked, whatever the client said.

import { captureConsole, finish, loadClient, readStdin } from "./lib.mjs";

let run = 0;
const print = (line) => process.stdout.write(JSON.stringify({ run, ...line }) + "\n");
captureConsole((warning) => print({ warning }));

const spec = await readStdin();
const { HttpAgent } = await loadClient(spec.version);
const agent = new HttpAgent({ url: spec.url, headers: spec.headers ?? {}, threadId: spec.threadId });

for (const each of spec.runs) {
  const { messages = [], state, abortAfter, ...parameters } = each;
  if (messages.length > 0) agent.setMessages([...agent.messages, ...messages]);
  if (state !== undefined) agent.setState(state);
  let seen = 0;
  const subscriber = {
    onEvent({ event }) {
      print({ event });
      seen += 1;
      if (abortAfter && seen === abortAfter.events) agent.abortRun();
    },
  };
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (error) {
    print({ failed: String(error?.message ?? error), status: error?.status, name: error?.name });
  }
  print({ done: true, messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts ?? [] });
  run += 1;
}
finish();
