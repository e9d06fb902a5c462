/** One open thread: what the page knows of it, and what can be done with it. Everything it shows comes by the feed. */
import type { BaseEvent, Message } from "@ag-ui/client";
import { type StoreApi, createStore } from "zustand/vanilla";
import { ApiError, type Asked, type ThreadSummary, api, newId, readRunError, said, stream } from "./api";
import { openEarly, pathOf } from "./early";
import { FeedAgent, StartOver, readRun } from "./feed";
import { clientTools } from "./tools";

export type Notice = { id: string; after: string; kind: string; text: string };
export type RawEvent = { at: number; id: string; event: BaseEvent };
export type Usage = { model?: string; inputTokens?: number; outputTokens?: number };
export type Spent = { started: number; ended?: number };

export type ThreadState = {
  phase: "new" | "loading" | "ready" | "gone";
  connected: boolean;
  title: string;
  messages: Message[];
  /** Sent from here, not yet told by the feed. */
  sending: Message[];
  steered: { id: string; text: string }[];
  state: unknown;
  running: boolean;
  stopping: boolean;
  asked: Asked[];
  closed: Asked[];
  notices: Notice[];
  error: { code: string; message: string } | null;
  usage: Usage | null;
  spent: Record<string, Spent>;
  raw: RawEvent[];
  rawCount: number;
};

const EMPTY: ThreadState = {
  phase: "new",
  connected: true,
  title: "",
  messages: [],
  sending: [],
  steered: [],
  state: {},
  running: false,
  stopping: false,
  asked: [],
  closed: [],
  notices: [],
  error: null,
  usage: null,
  spent: {},
  raw: [],
  rawCount: 0,
};

const RAW_KEPT = 4000;

type Told = ThreadSummary & {
  messages: Message[];
  state?: unknown;
  requests?: Asked[];
  turn: { id: string } | null;
};

/** A thread of ours, or, read only, another platform's session that is watched. */
export class OpenThread {
  readonly store: StoreApi<ThreadState> = createStore<ThreadState>(() => ({ ...EMPTY }));
  readonly readOnly: boolean;
  private readonly path: string;
  private agent: FeedAgent | null = null;
  private posts = new Map<string, AbortController>();
  private gone = false;
  private runId = "";
  private lastAsked = new Map<string, Asked>();
  private telling = "";

  constructor(
    readonly id: string,
    kind: "thread" | "session",
    private readonly changed: () => void,
  ) {
    this.readOnly = kind === "session";
    this.path = pathOf(kind, id);
  }

  private set(part: Partial<ThreadState>) {
    for (const one of part.asked ?? []) this.lastAsked.set(one.id, one);
    this.store.setState(part);
  }

  private get now(): ThreadState {
    return this.store.getState();
  }

  close() {
    this.gone = true;
    this.agent?.close();
    for (const post of this.posts.values()) post.abort();
  }

  // -- following ------------------------------------------------------------------------------------------------

  /** Read the thread and follow it until `close()`. */
  async follow(): Promise<void> {
    if (this.now.phase === "new") this.set({ phase: "loading" });
    for (let wait = 250; !this.gone; wait = Math.min(wait * 2, 8000)) {
      try {
        await this.once();
        wait = 250;
      } catch (error) {
        if (this.gone) return;
        if (error instanceof ApiError && [401, 403, 404].includes(error.status)) {
          this.set({ phase: "gone", error: { code: error.code, message: error.message } });
          return;
        }
        this.set({ connected: false });
        if (!(error instanceof StartOver)) await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  private async once(): Promise<void> {
    const { abort, feed, told: telling } = openEarly(this.path);
    const agent = new FeedAgent(this.id, this.path, abort, {
      raw: (event, id) => this.keepRaw(event, id),
      connection: (connected) => this.set({ connected }),
    });
    this.agent?.close();
    this.agent = agent;
    await agent.open(feed);
    const told = (await telling) as Told;
    agent.setMessages(told.messages);
    agent.setState(told.state ?? {});
    this.set({
      phase: "ready",
      title: told.title,
      messages: told.messages,
      state: told.state ?? {},
      asked: told.requests ?? [],
      running: told.turn !== null && told.status !== "parked",
      stopping: false,
      ...this.told(told.messages),
    });
    if (this.telling) this.note("told", this.telling);
    this.telling = "";
    this.changed();
    agent.subscribe({
      onMessagesChanged: ({ messages }) => this.set({ messages: [...messages], ...this.told(messages) }),
      onStateChanged: ({ state }) => this.set({ state: state as unknown }),
      onEvent: ({ event }) => this.heard(event),
    });
    await agent.connectAgent();
    throw new StartOver("The feed ended.");
  }

  /** What was sent from here and is on the thread now is no longer on its way. */
  private told(messages: readonly Readonly<Message>[]): Partial<ThreadState> {
    const ids = new Set(messages.map((message) => message.id));
    const { sending, steered } = this.now;
    const part: Partial<ThreadState> = {};
    if (sending.some((one) => ids.has(one.id))) part.sending = sending.filter((one) => !ids.has(one.id));
    if (steered.some((one) => ids.has(one.id))) part.steered = steered.filter((one) => !ids.has(one.id));
    return part;
  }

  private keepRaw(event: BaseEvent, id: string) {
    const { raw } = this.now;
    raw.push({ at: Date.now(), id, event });
    if (raw.length > RAW_KEPT * 1.25) raw.splice(0, raw.length - RAW_KEPT);
  }

  private heard(event: BaseEvent) {
    const one = event as BaseEvent & Record<string, any>;
    this.set({ rawCount: this.now.rawCount + 1 });
    switch (one.type as string) {
      case "RUN_STARTED":
        this.runId = one.runId;
        this.posts.get(one.runId)?.abort();
        this.set({ running: true, asked: [], error: null });
        break;
      case "RUN_FINISHED": {
        const outcome = one.outcome ?? {};
        const pending: string[] = outcome.pendingToolCallIds ?? [];
        const asked: Asked[] = outcome.interrupts ?? [];
        const parked = pending.length > 0 || asked.length > 0;
        this.set({ running: false, stopping: false, asked, usage: total(one.usage) ?? this.now.usage });
        if (!parked) this.set({ steered: [] });
        if (pending.length) void this.readRequests();
        this.changed();
        break;
      }
      case "RUN_ERROR":
        this.set({ running: false, stopping: false, asked: [], steered: [] });
        this.set({ error: { code: one.code ?? "error", message: one.message } });
        this.changed();
        break;
      case "TOOL_CALL_END":
        this.set({ spent: { ...this.now.spent, [one.toolCallId]: { started: Date.now() } } });
        break;
      case "TOOL_CALL_RESULT": {
        const spent = this.now.spent[one.toolCallId];
        if (spent) this.set({ spent: { ...this.now.spent, [one.toolCallId]: { ...spent, ended: Date.now() } } });
        break;
      }
      case "CUSTOM":
        this.custom(one.name, one.value);
        break;
    }
  }

  private custom(name: string, value: any) {
    if (name === "hermes.request") {
      this.set({ asked: [...this.now.asked.filter((one) => one.id !== value.id), value] });
    } else if (name === "hermes.request_closed") {
      this.closeRequest(value.id, value.how);
    } else if (name === "hermes.notice" && value.kind !== "further_turn") {
      this.note(value.kind, value.text);
    } else if (name === "hermes.rewound") {
      this.note("rewound", "The conversation was taken back to an earlier message.");
    } else if (name === "hermes.request_expired") {
      this.note("expired", "The question had expired before the answer came.");
    }
  }

  /** A question that ended without an answer stays to be seen. */
  private closeRequest(id: string, how: string) {
    const known = this.now.asked.find((one) => one.id === id) ?? this.lastAsked.get(id);
    this.set({ asked: this.now.asked.filter((one) => one.id !== id) });
    if (known) this.set({ closed: [...this.now.closed.filter((one) => one.id !== id), { ...known, closed: how }] });
  }

  /** Say this behind the newest message, as soon as that is known. */
  tell(text: string) {
    if (this.now.phase === "ready") this.note("told", text);
    else this.telling = text;
  }

  private note(kind: string, text: string) {
    const after = this.now.messages.at(-1)?.id ?? "";
    this.set({ notices: [...this.now.notices, { id: newId("notice"), after, kind, text }] });
  }

  /** A call of ours has its request's id only in the thread's description. */
  private async readRequests(): Promise<void> {
    const run = this.runId;
    const told = await api<Told>(this.path).catch(() => null);
    if (told && this.runId === run && !this.now.running) this.set({ asked: told.requests ?? [] });
  }

  // -- doing ----------------------------------------------------------------------------------------------------

  /** Say something: a new run, or, while a turn runs, a word to it. Throws ApiError when it was not taken. */
  async say(content: string | unknown[]): Promise<void> {
    const { running, asked } = this.now;
    if (typeof content === "string" && content.trim() === "/stop") return this.stop();
    const command = typeof content === "string" && content.trimStart().startsWith("/");
    if (running && !asked.length && typeof content === "string" && !command) return this.steer(content);
    await this.start([], { id: newId("msg"), role: "user", content } as Message);
  }

  private async steer(text: string): Promise<void> {
    const message = { id: newId("msg"), text };
    this.set({ steered: [...this.now.steered, message] });
    try {
      await api(`${this.path}/steer`, "POST", { text, messageId: message.id });
    } catch (error) {
      this.set({ steered: this.now.steered.filter((one) => one.id !== message.id) });
      const ended = error instanceof ApiError && error.code === "run_not_accepting_steer";
      if (!ended) throw error;
      await this.start([], { id: message.id, role: "user", content: text } as Message);
    }
  }

  /** Answer a user message again, with another text where one is given. What came after it is taken back. */
  async again(messageId: string, content?: string): Promise<void> {
    const { messages } = this.now;
    const index = messages.findIndex((one) => one.id === messageId);
    const old = messages[index];
    if (!old) throw new ApiError(0, "unknown_message", "This message is no longer part of the thread.");
    const message = { ...old, ...(content === undefined ? {} : { content: edited(old, content) }) } as Message;
    if (this.now.running || this.now.asked.length) await this.stop();
    const before = messages.slice(0, index).filter((one) => one.role !== "activity" && one.role !== "reasoning");
    await this.start(before, message);
  }

  private async start(before: Message[], message: Message): Promise<void> {
    const runId = newId("run");
    const first = this.now.phase === "new";
    this.set({ sending: [...this.now.sending, message], error: null, closed: [] });
    const post = new AbortController();
    this.posts.set(runId, post);
    try {
      const response = await stream("/agui", post.signal, "", {
        threadId: this.id,
        runId,
        protocolVersion: "1.0",
        messages: [...before, message],
        tools: clientTools(),
        state: this.now.state ?? {},
        context: [],
        forwardedProps: {},
      });
      void this.drain(response, runId);
      if (first) void this.follow();
    } catch (error) {
      this.set({ sending: this.now.sending.filter((one) => one.id !== message.id) });
      this.posts.delete(runId);
      throw error;
    }
  }

  /** The run's own response says what the feed says; it is read only until the feed has the run. */
  private async drain(response: Response, runId: string): Promise<void> {
    let failed: BaseEvent | null = null;
    try {
      await readRun(response, (event) => {
        if (event.type === "RUN_ERROR") failed = event;
      });
    } catch {
      // the feed goes on
    }
    this.posts.delete(runId);
    if (failed && this.runId !== runId) this.set({ error: readRunError(failed), sending: [] });
  }

  async stop(): Promise<void> {
    this.set({ stopping: true });
    try {
      await api(`${this.path}/stop`, "POST");
    } finally {
      this.set({ stopping: false });
    }
  }

  async answer(asked: Asked, payload: unknown): Promise<void> {
    try {
      await api(`${this.path}/requests/${encodeURIComponent(asked.id)}`, "POST", payload);
      this.set({ asked: this.now.asked.filter((one) => one.id !== asked.id) });
    } catch (error) {
      if (error instanceof ApiError && (error.status === 409 || error.status === 404)) this.closeRequest(asked.id, "late");
      throw error;
    }
  }

  async rename(title: string): Promise<void> {
    const told = await api<{ title: string }>(this.path, "PATCH", { title });
    this.set({ title: told.title });
    this.changed();
  }

  stopSubagent = (id: string) => api(`${this.path}/subagents/${encodeURIComponent(id)}/stop`, "POST");
  steerSubagent = (id: string, text: string) =>
    api(`${this.path}/subagents/${encodeURIComponent(id)}/steer`, "POST", { text });
  processes = () => api<{ processes: Process[] }>(`${this.path}/processes`);
  stopProcess = (id: string) => api(`${this.path}/processes/${encodeURIComponent(id)}/stop`, "POST");

  fail(error: unknown) {
    this.set({ error: { code: error instanceof ApiError ? error.code : "error", message: said(error) } });
  }

  dismiss() {
    this.set({ error: null });
  }
}

export type Process = { id: string; status: string; command?: string; output?: string; exitCode?: number };

function total(usage: unknown): Usage | null {
  if (!Array.isArray(usage) || !usage.length) return null;
  const sum = (name: string) => usage.reduce((all, one) => all + (one[name] ?? 0), 0);
  return { model: usage[0].model, inputTokens: sum("inputTokens"), outputTokens: sum("outputTokens") };
}

/** A message's content with another text; its attachments stay. */
function edited(message: Message, text: string): unknown {
  const { content } = message as { content: unknown };
  if (!Array.isArray(content)) return text;
  return [{ type: "text", text }, ...content.filter((part) => part.type !== "text")];
}
