/** AG-UI messages as the chat kit's messages: one for each user message, one for all that answers it. Pure. */
import type { Message } from "@ag-ui/client";
import type { ThreadMessageLike } from "@assistant-ui/react";
import type { Notice, Spent } from "./thread";

export type Media = {
  type: string;
  source?: { type: string; value: string; mimeType?: string };
  metadata?: { filename?: string };
};
export type Custom = { media: Media[]; pending: boolean; steer: boolean };

/** What one message of the kit is made of; the same object as before where nothing of it changed. */
export type Group = { id: string; role: "user" | "assistant"; made_of: readonly unknown[]; like: ThreadMessageLike };

export type Source = {
  messages: readonly Message[];
  sending: readonly Message[];
  steered: readonly { id: string; text: string }[];
  notices: readonly Notice[];
  spent: Readonly<Record<string, Spent>>;
};

type Loose = Message & Record<string, any>;

/** Keeps what did not change: the protocol's client hands out fresh copies with every event. */
export class Grouper {
  private known = new Map<string, Loose>();
  private groups = new Map<string, Group>();

  group(source: Source): Group[] {
    const messages = source.messages.map((one) => this.stable(one as Loose));
    this.known = new Map(messages.map((one) => [one.id, one]));
    const made = gather(messages, source);
    const groups = made.map((draft) => {
      const before = this.groups.get(draft.id);
      const same =
        before?.role === draft.role &&
        before.made_of.length === draft.from.length &&
        before.made_of.every((one, index) => one === draft.from[index]);
      return same ? before : { id: draft.id, role: draft.role, made_of: draft.from, like: like(draft) };
    });
    this.groups = new Map(groups.map((one) => [one.id, one]));
    return groups;
  }

  private stable(message: Loose): Loose {
    const before = this.known.get(message.id);
    return before && alike(before, message) ? before : message;
  }
}

function alike(a: Loose, b: Loose): boolean {
  if (a.role !== b.role) return false;
  if (typeof a.content === "string" || typeof b.content === "string") {
    if (a.content !== b.content) return false;
  } else if (JSON.stringify(a.content) !== JSON.stringify(b.content)) return false;
  if (!a.toolCalls && !b.toolCalls) return true;
  return JSON.stringify(a.toolCalls) === JSON.stringify(b.toolCalls);
}

type Item =
  | { kind: "message"; message: Loose }
  | { kind: "notice"; notice: Notice }
  | { kind: "activity"; message: Loose };
type Draft = {
  id: string;
  role: "user" | "assistant";
  items: Item[];
  from: unknown[];
  results: Map<string, Loose>;
  inner: Map<string, Loose>;
  spent: Map<string, Spent>;
  pending: boolean;
  steer: boolean;
};

function draft(id: string, role: "user" | "assistant", message?: Loose, pending = false, steer = false): Draft {
  const items: Item[] = message ? [{ kind: "message", message }] : [];
  const from = message ? [message, pending, steer] : [];
  return { id, role, items, from, results: new Map(), inner: new Map(), spent: new Map(), pending, steer };
}

function gather(messages: Loose[], source: Source): Draft[] {
  const made: Draft[] = [];
  const hidden = new Set<string>(); // texts that say what an attachment shows
  const notices = new Map<string, Notice[]>();
  for (const notice of source.notices) notices.set(notice.after, [...(notices.get(notice.after) ?? []), notice]);
  const there = new Set(messages.map((one) => one.id));
  const answer = (id: string): Draft => {
    const last = made.at(-1);
    if (last?.role === "assistant") return last;
    const fresh = draft(`${id}:answer`, "assistant");
    made.push(fresh);
    return fresh;
  };
  const tell = (id: string) => {
    for (const notice of notices.get(id) ?? []) {
      const to = answer(notice.id);
      to.items.push({ kind: "notice", notice });
      to.from.push(notice);
    }
  };
  for (const message of messages) {
    if (message.role === "activity" && message.activityType === "hermes.attachment") {
      hidden.add(String(message.content.messageId));
    }
  }
  tell("");
  for (const message of messages) {
    if (message.role === "user") made.push(draft(message.id, "user", message));
    else if (message.role === "tool") {
      const to = answer(message.id);
      to.results.set(message.toolCallId, message);
      to.from.push(message);
    } else if (message.role === "activity") {
      const to = answer(message.id);
      to.from.push(message);
      if (message.activityType === "hermes.inner_tools") to.inner.set(String(message.content.toolCallId), message);
      else to.items.push({ kind: "activity", message });
    } else if ((message.role === "assistant" || message.role === "reasoning") && !hidden.has(message.id)) {
      const to = answer(message.id);
      to.items.push({ kind: "message", message });
      to.from.push(message);
      for (const call of message.toolCalls ?? []) {
        const spent = source.spent[call.id];
        if (spent) {
          to.spent.set(call.id, spent);
          to.from.push(spent);
        }
      }
    }
    tell(message.id);
  }
  for (const message of source.sending) {
    if (!there.has(message.id)) made.push(draft(message.id, "user", message as Loose, true));
  }
  for (const { id, text } of source.steered) {
    if (!there.has(id)) made.push(draft(id, "user", { id, role: "user", content: text } as Loose, true, true));
  }
  return made;
}

type Part = Exclude<ThreadMessageLike["content"], string>[number];

function like(from: Draft): ThreadMessageLike {
  if (from.role === "user") {
    const { content } = (from.items[0] as { message: Loose }).message as { content: unknown };
    const parts: Loose[] = Array.isArray(content) ? content : [{ type: "text", text: String(content ?? "") }];
    const text = parts.filter((part) => (part.type as unknown) === "text").map((part) => String(part.text));
    const media = parts.filter((part) => (part.type as unknown) !== "text") as unknown as Media[];
    const custom: Custom = { media, pending: from.pending, steer: from.steer };
    return { id: from.id, role: "user", content: text.join("\n"), metadata: { custom } };
  }
  const content: Part[] = [];
  for (const item of from.items) content.push(...parts(item, from));
  return { id: from.id, role: "assistant", content, status: { type: "complete", reason: "stop" } };
}

function parts(item: Item, from: Draft): Part[] {
  if (item.kind === "notice") return [{ type: "data", name: "notice", data: item.notice }];
  const { message } = item;
  if (item.kind === "activity") {
    const name = String(message.activityType).replace(/^hermes\./, "");
    return name === "plan" ? [] : [{ type: "data", name, data: message.content }];
  }
  if (message.role === "reasoning") return [{ type: "reasoning", text: String(message.content ?? "") }];
  const made: Part[] = [];
  if (message.content) made.push({ type: "text", text: String(message.content) });
  for (const call of (message.toolCalls ?? []) as ToolCall[]) {
    const result = from.results.get(call.id);
    const artifact: CallFacts = { spent: from.spent.get(call.id), inner: (from.inner.get(call.id)?.content as { calls?: InnerCall[] })?.calls };
    made.push({
      type: "tool-call",
      toolCallId: call.id,
      toolName: call.function.name,
      argsText: call.function.arguments,
      artifact,
      ...(result && { result: resultText(result.content), isError: failed(result) }),
    });
  }
  return made;
}

type ToolCall = { id: string; function: { name: string; arguments: string } };
export type InnerCall = { id: string; name: string; arguments: string; status: string; seconds?: number; result?: string };
export type CallFacts = { spent?: Spent; inner?: InnerCall[] };

export function resultText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content);
  return content.map((part) => (part.type === "text" ? String(part.text) : `[${part.type}]`)).join("\n");
}

/** The protocol has no mark for a failed call: Hermes's tools say it in their result. */
export function failed(message: { content?: unknown; error?: unknown }): boolean {
  if (message.error) return true;
  const text = resultText(message.content);
  if (text === "failed") return true;
  try {
    const told = JSON.parse(text) as Record<string, unknown>;
    if (told === null || typeof told !== "object") return false;
    return Boolean(told.error) || told.status === "error" || (typeof told.exit_code === "number" && told.exit_code !== 0);
  } catch {
    return false;
  }
}
