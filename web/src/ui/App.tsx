/** The page: sidebar, the open thread with its header, the inspector. */
import { useEffect, useState } from "react";
import { said } from "../api";
import { branch, resume, useConsole } from "../console";
import { ThreadContext, useOpenThread, useThread } from "../context";
import { Chat } from "./Chat";
import { Pairing, SignIn } from "./Door";
import { Inspector } from "./Inspector";
import { Sidebar } from "./Sidebar";
import { Icon, count } from "./bits";
import { Processes } from "./Processes";

export function App() {
  const access = useConsole((state) => state.access);
  const open = useConsole((state) => state.open);
  const [inspecting, setInspecting] = useState(false);
  const [drawer, setDrawer] = useState(false);
  if (access === "asking") return <main className="door" aria-busy="true" />;
  if (access === "pairing") return <Pairing />;
  if (access !== "in" || !open) return <SignIn />;
  return (
    <ThreadContext.Provider value={open}>
      <div className={`app${inspecting ? " inspecting" : ""}${drawer ? " drawer" : ""}`}>
        <Sidebar onLeave={() => setDrawer(false)} />
        <button type="button" className="shade" aria-label="Close the list" tabIndex={-1} onClick={() => setDrawer(false)} />
        <main className="main" key={`${open.readOnly}-${open.id}`}>
          <Header
            drawer={drawer}
            onDrawer={() => setDrawer(!drawer)}
            inspecting={inspecting}
            onInspect={() => setInspecting(!inspecting)}
          />
          <Chat />
        </main>
        {inspecting && <Inspector onClose={() => setInspecting(false)} />}
      </div>
    </ThreadContext.Provider>
  );
}

type HeaderProps = { drawer: boolean; onDrawer: () => void; inspecting: boolean; onInspect: () => void };

type Facts = {
  model?: string;
  title?: string;
  usage?: { inputTokens?: number; outputTokens?: number };
  context?: { usedTokens?: number; windowTokens?: number };
};

function Header({ drawer, onDrawer, inspecting, onInspect }: HeaderProps) {
  const thread = useOpenThread();
  const told = useThread((state) => state.title);
  const listed = useConsole((state) => state.threads.find((one) => one.threadId === thread.id)?.title);
  const title = (!thread.readOnly && listed) || told; // another window may have renamed it
  const connected = useThread((state) => state.connected);
  const last = useThread((state) => state.usage);
  const facts = useThread((state) => (state.state as { hermes?: Facts } | null)?.hermes);
  const asked = useThread((state) => firstWords(state.messages));
  const name = title || facts?.title || asked;
  useEffect(() => {
    document.title = name ? `${name} – Hermes` : "Hermes";
  }, [name]);
  const model = facts?.model || last?.model || "";
  const used = facts?.context?.windowTokens ? (facts.context.usedTokens ?? 0) / facts.context.windowTokens : 0;
  const usage = facts?.usage ?? last;
  return (
    <header className="header">
      <button
        type="button"
        className="round quiet only-narrow"
        aria-label="Threads"
        aria-expanded={drawer}
        aria-controls="sidebar"
        onClick={onDrawer}
      >
        <Icon name="menu" />
      </button>
      <h2 className="title">{name || (thread.readOnly ? "Session" : "New thread")}</h2>
      {!connected && (
        <span className="badge bad" role="status">
          Offline, reconnecting …
        </span>
      )}
      {thread.readOnly && <Watching />}
      {model && (
        <span className="facts muted small" title={usageTitle(usage, used)}>
          <span className="model">{model}</span>
          {usage && (usage.inputTokens || usage.outputTokens) ? (
            <span data-usage>
              {count(usage.inputTokens ?? 0)} in · {count(usage.outputTokens ?? 0)} out
            </span>
          ) : null}
          {used > 0 && <meter min={0} max={1} high={0.8} value={used} aria-label="Context in use" />}
        </span>
      )}
      {!thread.readOnly && <Processes />}
      <Theme />
      <button
        type="button"
        className="round quiet"
        aria-label="Event inspector"
        title="Event inspector"
        aria-pressed={inspecting}
        onClick={onInspect}
      >
        <Icon name="bug" />
      </button>
    </header>
  );
}

/** What the thread began with, for as long as Hermes has no title for it. */
function firstWords(messages: readonly { role: string; content?: unknown }[]): string {
  const content = messages.find((one) => one.role === "user")?.content;
  return typeof content === "string" ? content.slice(0, 80) : "";
}

function usageTitle(usage: { inputTokens?: number; outputTokens?: number } | null | undefined, used: number): string {
  const tokens = `${usage?.inputTokens ?? 0} tokens in, ${usage?.outputTokens ?? 0} out`;
  return used ? `${tokens}; ${Math.round(used * 100)} % of the context in use` : tokens;
}

/** What can be done with another platform's session that is watched. */
function Watching() {
  const thread = useOpenThread();
  const act = (work: Promise<unknown>) => void work.catch((error) => thread.fail(new Error(said(error))));
  return (
    <span className="row">
      <span className="badge">Watching</span>
      <button type="button" onClick={() => act(branch(thread.id, "session"))}>
        Branch
      </button>
      <button type="button" onClick={() => act(resume(thread.id))}>
        Go on here
      </button>
    </span>
  );
}

const THEME = "hermes-agui.theme";

/** Set before the first paint, from main.tsx. */
export function applyTheme(choice = localStorage.getItem(THEME)): boolean {
  const dark = choice ? choice === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return dark;
}

function Theme() {
  const [dark, setDark] = useState(document.documentElement.dataset.theme === "dark");
  const toggle = () => {
    localStorage.setItem(THEME, dark ? "light" : "dark");
    setDark(applyTheme());
  };
  return (
    <button
      type="button"
      className="round quiet"
      onClick={toggle}
      aria-label={dark ? "Light theme" : "Dark theme"}
      title={dark ? "Light theme" : "Dark theme"}
    >
      <Icon name={dark ? "sun" : "moon"} />
    </button>
  );
}
