/** What stands in an answer beside text: tool calls, subagents, attachments, notices. */
import type { DataMessagePartProps, ReasoningMessagePartProps, ToolCallMessagePartProps } from "@assistant-ui/react";
import { type FormEvent, useState } from "react";
import { here } from "../api";
import { useOpenThread, useThread } from "../context";
import type { CallFacts, InnerCall, Media } from "../parts";
import type { Notice } from "../thread";
import { CHART, COLOR, barsOf } from "../tools";
import { Code, Markdown } from "./Markdown";
import { Icon, count, duration, useNow } from "./bits";
import { Chart, ColorAnswer } from "./clientTools";

export function Reasoning({ text }: ReasoningMessagePartProps) {
  return (
    <details className="fold reasoning">
      <summary>
        <Icon name="down" /> Reasoning
      </summary>
      <Markdown text={text} />
    </details>
  );
}

// -- tool calls ----------------------------------------------------------------------------------------------------

export function ToolCard(part: ToolCallMessagePartProps) {
  const { toolName, toolCallId, argsText, result, isError } = part;
  const facts = (part.artifact ?? {}) as CallFacts;
  const running = useThread((state) => state.running);
  const asked = useThread((state) => state.asked.find((one) => one.toolCallId === toolCallId));
  const waits = result === undefined && asked !== undefined;
  const works = result === undefined && running && !waits;
  const now = useNow(works && facts.spent !== undefined);
  const status = isError ? "failed" : result !== undefined ? "done" : waits ? "waiting" : works ? "running" : "no result";
  const spent = facts.spent ? (facts.spent.ended ?? (works ? now : 0)) - facts.spent.started : 0;
  const args = parsed(argsText);
  if (toolName === CHART && barsOf(args).length) return <Chart args={args} asked={asked} />;
  if (toolName === COLOR) return <ColorAnswer args={args} asked={asked} result={result as string | undefined} />;
  return (
    <details className={`tool ${status.replace(" ", "-")}`} data-tool={toolName}>
      <summary>
        <span className={`dot ${status.replace(" ", "-")}`} />
        <span className="tool-name">{toolName}</span>
        <span className="tool-brief">{brief(args)}</span>
        <span className="tool-status">
          {spent > 40 ? `${duration(spent)} · ` : ""}
          {status}
        </span>
      </summary>
      <div className="tool-body">
        <h4>Arguments</h4>
        <Code text={pretty(argsText)} language="json" />
        {facts.inner?.length ? <InnerCalls calls={facts.inner} /> : null}
        {result !== undefined && (
          <>
            <h4>Result</h4>
            <Result text={String(result)} />
          </>
        )}
      </div>
    </details>
  );
}

function InnerCalls({ calls }: { calls: InnerCall[] }) {
  return (
    <>
      <h4>Calls inside</h4>
      <ul className="inner">
        {calls.map((call) => (
          <li key={call.id}>
            <span className={`dot ${call.status === "ok" ? "done" : call.status === "error" ? "failed" : "running"}`} />
            <code>{call.name}</code> <span className="tool-brief">{brief(parsed(call.arguments))}</span>
            {call.seconds !== undefined && <span className="muted">{duration(call.seconds * 1000)}</span>}
          </li>
        ))}
      </ul>
    </>
  );
}

const SHOWN = 6000;

function Result({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  const told = parsed(text);
  const output = isObject(told) && typeof told.output === "string" ? told.output : null;
  const shown = output ?? pretty(text);
  const cut = !whole && shown.length > SHOWN;
  return (
    <>
      <Code text={cut ? shown.slice(0, SHOWN) : shown} language={output === null && told !== null ? "json" : ""} />
      {output !== null && told !== null && isObject(told) && typeof told.exit_code === "number" && told.exit_code !== 0 && (
        <p className="bad">Exit code {told.exit_code}</p>
      )}
      {cut && (
        <button type="button" className="quiet" onClick={() => setWhole(true)}>
          Show all {count(shown.length)} characters
        </button>
      )}
    </>
  );
}

const isObject = (value: unknown): value is Record<string, any> => typeof value === "object" && value !== null;

function parsed(text: string | undefined): unknown {
  try {
    return JSON.parse(text || "null") as unknown;
  } catch {
    return null;
  }
}

function pretty(text: string): string {
  const value = parsed(text);
  return isObject(value) ? JSON.stringify(value, null, 2) : text;
}

/** The argument that says most, in one line. */
function brief(args: unknown): string {
  if (!isObject(args)) return "";
  const told = args.command ?? args.path ?? args.query ?? args.url ?? args.question ?? args.goal ?? args.code;
  const value = told ?? Object.values(args).find((one) => typeof one === "string");
  return typeof value === "string" ? value.replace(/\s+/g, " ").slice(0, 200) : "";
}

// -- activities ----------------------------------------------------------------------------------------------------

type SubagentFacts = {
  subagentId: string;
  name: string;
  status: string;
  goal?: string;
  steps?: { kind: string; tool?: string; text?: string; preview?: string }[];
  stepsLeftOut?: number;
  summary?: string;
  error?: string;
  seconds?: number;
};

export function SubagentCard({ data }: DataMessagePartProps<SubagentFacts>) {
  const thread = useOpenThread();
  const [text, setText] = useState("");
  const [said, setSaid] = useState("");
  const works = data.status === "running";
  const act = (what: Promise<unknown>, done: string) =>
    what.then(
      () => setSaid(done),
      (error: Error) => setSaid(error.message),
    );
  const steer = (event: FormEvent) => {
    event.preventDefault();
    if (!text.trim()) return;
    void act(thread.steerSubagent(data.subagentId, text.trim()), "Told.");
    setText("");
  };
  const last = data.steps?.at(-1);
  return (
    <details className={`tool subagent ${works ? "running" : data.error ? "failed" : "done"}`}>
      <summary>
        <span className={`dot ${works ? "running" : data.error ? "failed" : "done"}`} />
        <span className="tool-name">Subagent{data.name === "subagent" ? "" : ` ${data.name}`}</span>
        <span className="tool-brief">{data.goal ?? last?.tool ?? ""}</span>
        <span className="tool-status">
          {data.seconds ? `${duration(data.seconds * 1000)} · ` : ""}
          {data.status}
        </span>
      </summary>
      <div className="tool-body">
        {data.goal && <p>{data.goal}</p>}
        {data.stepsLeftOut ? <p className="muted">{data.stepsLeftOut} earlier steps</p> : null}
        <ul className="inner">
          {(data as SubagentFacts).steps?.map((step, index) => (
            <li key={index}>
              <code>{step.tool ?? step.kind}</code>{" "}
              <span className="tool-brief">{step.text ?? step.preview ?? ""}</span>
            </li>
          ))}
        </ul>
        {data.summary && <Markdown text={data.summary} />}
        {data.error && <p className="bad">{data.error}</p>}
        {works && !thread.readOnly && (
          <form className="row" onSubmit={steer}>
            <input
              value={text}
              onChange={(event) => setText(event.target.value)}
              placeholder="Tell it something"
              aria-label={`Tell ${data.name} something`}
            />
            <button type="submit">Tell</button>
            <button type="button" className="danger" onClick={() => void act(thread.stopSubagent(data.subagentId), "Stopping.")}>
              Stop subagent
            </button>
          </form>
        )}
        {said && <p role="status" className="muted">{said}</p>}
      </div>
    </details>
  );
}

type FileFacts = { url: string; name: string; mimeType: string; size: number; kind: string; caption?: string };

export function AttachmentCard({ data }: DataMessagePartProps<FileFacts>) {
  const address = here(data.url);
  const link = address || data.url;
  return (
    <figure className="attachment">
      {data.kind === "image" && address && <img src={address} alt={data.caption || data.name} />}
      {data.kind === "audio" && address && <audio controls src={address} aria-label={data.name} />}
      {data.kind === "video" && address && <video controls src={address} aria-label={data.name} />}
      <figcaption>
        <a href={link} target="_blank" rel="noreferrer noopener" download={data.kind === "image" ? undefined : data.name}>
          {data.name}
        </a>
        <span className="muted">{size(data.size)}</span>
        {data.caption && <p>{data.caption}</p>}
      </figcaption>
    </figure>
  );
}

const size = (bytes: number) => (bytes ? `${count(bytes).replace(/[KMB]?$/, " $&")}B` : "");

export function NoticeLine({ data }: DataMessagePartProps<Notice>) {
  return (
    <p className="notice" role="note">
      {data.text}
    </p>
  );
}

/** What a user attached. */
export function MediaList({ media }: { media: Media[] }) {
  if (!media.length) return null;
  return (
    <div className="media">
      {media.map((one, index) => {
        const address = addressOf(one);
        const name = one.metadata?.filename ?? one.type;
        if (one.type === "image" && address) return <img key={index} src={address} alt={name} />;
        if (one.type === "audio" && address) return <audio key={index} controls src={address} aria-label={name} />;
        if (one.type === "video" && address) return <video key={index} controls src={address} aria-label={name} />;
        return (
          <span key={index} className="chip">
            <Icon name="clip" />
            {address?.startsWith("/files/") ? (
              <a href={address} target="_blank" rel="noreferrer noopener">
                {name}
              </a>
            ) : (
              name
            )}
          </span>
        );
      })}
    </div>
  );
}

function addressOf(media: Media): string {
  const { source } = media;
  if (!source) return "";
  if (source.type === "data") return `data:${source.mimeType ?? ""};base64,${source.value}`;
  return source.type === "url" ? here(source.value) : "";
}
