// A page with CopilotKit's core in it, which is what its React package runs on: connects, talks, prints as JSON lines.
//
// stdin: {runtimeUrl, agent, threadId, turns: [{messages?, merge?, tools?, results?, answers?, context?, forwardedProps?}]}
//   tools: as on the wire; their handlers give `results[name]`, or nothing is returned. `merge`: members of the state.
//   answers: payloads for the interrupts of the turn, one run after the other; null cancels.
// stdout: as tests/js/run_agent.mjs: {run, event} | {run, warning} | {run, failed} | {run, done, messages, state,
//   interrupts}. The first `done`, with run -1, is what there was on the thread.

import { CopilotKitCore, ɵInterruptState } from "@copilotkit/core";
import { captureConsole, finish, readStdin } from "../js/lib.mjs";

let run = -1;
const print = (line) => process.stdout.write(JSON.stringify({ run, ...line }) + "\n");
captureConsole((warning) => print({ warning }));

globalThis.window = {}; // the core connects in browsers only
const spec = await readStdin();
const core = new CopilotKitCore({ runtimeUrl: spec.runtimeUrl });
core.subscribe({ onError: ({ error, code }) => print({ failed: `${code}: ${error.message}` }) });
for (const end = Date.now() + 30_000; core.runtimeConnectionStatus !== "connected"; ) {
  if (Date.now() > end || core.runtimeConnectionStatus === "error") throw new Error(`not connected: ${core.runtimeConnectionStatus}`);
  await new Promise((resolve) => setTimeout(resolve, 20));
}
const agent = core.getAgent(spec.agent);
agent.threadId = spec.threadId;

// What useInterrupt of @copilotkit/react-core does with a run's outcome.
const asked = new ɵInterruptState();
let interrupts = [];
let interruptedRun;
agent.subscribe({
  onEvent: ({ event }) => print({ event }),
  onRunStartedEvent: () => {
    interrupts = [];
    asked.clear();
  },
  onRunFinishedEvent: ({ outcome, interrupts: open, input }) => {
    if (outcome !== "interrupt") return;
    interrupts = open;
    interruptedRun = input.runId;
    asked.setStandard(open);
  },
});

async function answer(payload) {
  let decision;
  for (const { id } of interrupts) decision = payload === null ? asked.cancel(id) : asked.resolve(payload, id);
  if (decision?.kind !== "resume") throw new Error(`nothing to answer: ${JSON.stringify(decision)}`);
  for (const { toolCallId, content } of decision.toolResults) {
    agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId, content });
  }
  await core.runAgent({ agent, resume: decision.resume, runId: interruptedRun });
}

// A standard schema that has its JSON Schema by it, as valibot's and zod's have.
const schema = (parameters) => ({ "~standard": { version: 1, vendor: "test", jsonSchema: { input: () => parameters } } });

const done = () => print({ done: true, messages: agent.messages, state: agent.state, interrupts });

await core.connectAgent({ agent });
done();
for (const turn of spec.turns) {
  run += 1;
  try {
    core.setTools(
      (turn.tools ?? []).map((tool) => ({
        ...tool,
        parameters: schema(tool.parameters),
        ...(tool.name in (turn.results ?? {}) && { handler: async () => turn.results[tool.name] }),
      })),
    );
    const context = (turn.context ?? []).map((each) => core.addContext(each));
    if (turn.merge) agent.setState({ ...agent.state, ...turn.merge });
    for (const message of turn.messages ?? []) agent.addMessage(message);
    await core.runAgent({ agent, forwardedProps: turn.forwardedProps });
    for (const payload of turn.answers ?? []) await answer(payload);
    for (const id of context) core.removeContext(id);
  } catch (error) {
    print({ failed: String(error?.message ?? error) });
  }
  done();
}
finish();
