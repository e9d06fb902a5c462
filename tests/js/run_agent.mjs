// Runs the official HttpAgent against a server and prints what it delivered, as JSON lines.
//
// stdin: {version: "1"|"0", url, headers?, threadId, runs: [{runId?, messages?, tools?, context?, state?,
//         forwardedProps?, resume?, merge?, results?, answers?, abortAfter?: {events}}]}. All runs share one agent;
//         `messages` are appended to it. What a page does by itself: `merge` are members of the state that it changes;
//         `results` its tools' results by name, which are given in runs of their own as long as a call waits for one;
//         `answers` payloads for the interrupts, one run after the other (null cancels).
// stdout: {run, event} | {run, warning} | {run, failed, status?, name?} | {run, done, messages, state, interrupts}
// Exit code 0 when the script itself worked, whatever the client said.

import { randomUUID } from "node:crypto";
import { captureConsole, finish, loadClient, readStdin } from "./lib.mjs";

let run = 0;
const print = (line) => process.stdout.write(JSON.stringify({ run, ...line }) + "\n");
captureConsole((warning) => print({ warning }));

const spec = await readStdin();
const { HttpAgent } = await loadClient(spec.version);
const agent = new HttpAgent({ url: spec.url, headers: spec.headers ?? {}, threadId: spec.threadId });

// Puts a result behind each call that waits for one; false when none does.
function giveResults(results) {
  const given = new Set(agent.messages.filter(({ role }) => role === "tool").map(({ toolCallId }) => toolCallId));
  const held = [...agent.messages];
  for (const message of agent.messages) {
    for (const { id, function: made } of message.toolCalls ?? []) {
      if (given.has(id) || !(made.name in results)) continue;
      let place = held.indexOf(message) + 1;
      while (held[place]?.role === "tool") place += 1;
      held.splice(place, 0, { id: randomUUID(), role: "tool", toolCallId: id, content: results[made.name] });
    }
  }
  const found = held.length > agent.messages.length;
  if (found) agent.setMessages(held);
  return found;
}

function answered(payload) {
  const status = payload === null ? "cancelled" : "resolved";
  return agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status, ...(payload !== null && { payload }) }));
}

for (const each of spec.runs) {
  const { messages = [], state, merge, results = {}, answers = [], abortAfter, ...parameters } = each;
  if (messages.length > 0) agent.setMessages([...agent.messages, ...messages]);
  if (state !== undefined) agent.setState(state);
  if (merge !== undefined) agent.setState({ ...agent.state, ...merge });
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
    const { runId, resume, ...again } = parameters;
    while (giveResults(results)) await agent.runAgent(again, subscriber);
    for (const payload of answers) await agent.runAgent({ ...again, resume: answered(payload) }, subscriber);
  } catch (error) {
    print({ failed: String(error?.message ?? error), status: error?.status, name: error?.name });
  }
  print({ done: true, messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts ?? [] });
  run += 1;
}
finish();
