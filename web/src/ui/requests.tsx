/** What the agent waits for: approvals, confirmations and questions as cards with the choices that Hermes allows. */
import { type FormEvent, useState } from "react";
import type { Asked } from "../api";
import { useOpenThread, useThread } from "../context";
import { CHART, COLOR } from "../tools";
import { Code, Markdown } from "./Markdown";
import { duration, useNow } from "./bits";

const WORDS: Record<string, string> = {
  once: "Allow once",
  session: "Allow for this session",
  always: "Always allow",
  deny: "Deny",
};
/** Hermes's own words in the text of a confirmation. */
const CONFIRMS: Record<string, string> = { once: "Approve once", always: "Always approve", cancel: "Cancel" };
const TITLES: Record<string, string> = {
  approval: "The agent asks to run this",
  confirm: "Please confirm",
  clarify: "The agent has a question",
  client_tool: "A tool of another page is called",
};

export function Requests() {
  const asked = useThread((state) => state.asked);
  const closed = useThread((state) => state.closed);
  const messages = useThread((state) => state.messages);
  return (
    <div className="requests" aria-live="polite">
      {closed.map((one) => (
        <section key={one.id} className="card closed" data-request="closed">
          <h4>{ENDINGS[one.closed ?? ""] ?? "No longer asked"}</h4>
          <p>{one.message}</p>
        </section>
      ))}
      {asked
        .filter((one) => !isOurs(one, messages))
        .map((one) => (
          <Request key={one.id} asked={one} />
        ))}
    </div>
  );
}

const ENDINGS: Record<string, string> = {
  expired: "This question expired without an answer",
  late: "This was answered elsewhere, or its time was over",
  cancelled: "This question was withdrawn",
};

/** Whether a call of this page's own tools is what is asked: its card stands in the answer. */
function isOurs(asked: Asked, messages: readonly unknown[]): boolean {
  if (asked.metadata?.hermes?.kind !== "client_tool") return false;
  return messages.some((message) => {
    const calls = (message as { toolCalls?: { id: string; function: { name: string } }[] }).toolCalls ?? [];
    return calls.some((call) => call.id === asked.toolCallId && [COLOR, CHART].includes(call.function.name));
  });
}

function Request({ asked }: { asked: Asked }) {
  const thread = useOpenThread();
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const about = asked.metadata?.hermes;
  const kind = about?.kind ?? (asked.reason === "input_required" ? "clarify" : "confirm");
  const until = asked.expiresAt ? Date.parse(asked.expiresAt) : 0;
  const now = useNow(until > 0);
  const expired = until > 0 && now >= until;
  const command = about?.command ?? "";
  const words = kind === "approval" ? WORDS : kind === "confirm" ? CONFIRMS : {};
  const choices = about?.choices ?? [];
  const free = kind === "clarify" && !asked.responseSchema?.properties?.answer?.enum;
  const give = async (payload: unknown) => {
    setBusy(true);
    try {
      await thread.answer(asked, payload);
    } catch (error) {
      thread.fail(error);
    } finally {
      setBusy(false);
    }
  };
  const choose = (choice: string) =>
    give(kind === "clarify" ? { answer: choice } : { choice, ...(text.trim() ? { reason: text.trim() } : {}) });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) void give(kind === "client_tool" ? { content: text.trim() } : { answer: text.trim() });
  };
  const off = busy || expired || thread.readOnly;
  return (
    <section className="card request" data-request={kind} aria-label={TITLES[kind]}>
      <header className="row">
        <h4>{TITLES[kind]}</h4>
        {until > 0 && (
          <span className={expired ? "bad" : "muted"}>
            {expired ? "Expired" : `Expires in ${duration(until - now)}`}
          </span>
        )}
      </header>
      {about?.text ? <Markdown text={about.text} /> : <p>{asked.message}</p>}
      {command && <Code text={command} language={kind === "approval" ? "bash" : ""} />}
      <div className="row choices">
        {choices.map((choice) => (
          <button
            key={choice}
            type="button"
            className={choice === "once" ? "primary" : choice === "deny" ? "danger" : ""}
            disabled={off}
            onClick={() => void choose(choice)}
          >
            {words[choice] ?? choice}
          </button>
        ))}
      </div>
      {kind === "approval" && choices.includes("deny") && (
        <input
          value={text}
          disabled={off}
          onChange={(event) => setText(event.target.value)}
          placeholder="A reason for the agent (optional)"
          aria-label="A reason for the agent"
        />
      )}
      {(free || kind === "client_tool") && (
        <form className="row" onSubmit={submit}>
          <input
            value={text}
            disabled={off}
            onChange={(event) => setText(event.target.value)}
            placeholder={kind === "client_tool" ? "Its result, as text" : "Your answer"}
            aria-label="Your answer"
          />
          <button type="submit" className="primary" disabled={off || !text.trim()}>
            Answer
          </button>
        </form>
      )}
    </section>
  );
}
