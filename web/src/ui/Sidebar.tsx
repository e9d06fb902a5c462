/** The threads, and for the owner other platforms' sessions. */
import { useEffect, useState } from "react";
import { type SessionSummary, type ThreadSummary, said } from "../api";
import { branch, change, compress, goTo, list, remove, search, sessions, showArchived, useConsole } from "../console";
import { useThread } from "../context";
import { Dialog, Icon, Menu } from "./bits";

export function Sidebar({ onLeave }: { onLeave: () => void }) {
  const { threads, next, query, archived, listing, open } = useConsole();
  const watched = useConsole((state) => state.sessions);
  const [asking, setAsking] = useState<{ what: "rename" | "delete"; thread: ThreadSummary } | null>(null);
  const [said_, setSaid] = useState("");
  const act = (work: Promise<unknown>) =>
    work.then(
      (told) => setSaid(typeof told === "string" ? told : ""),
      (error) => setSaid(said(error)),
    );
  const shrink = (id: string) => {
    setSaid("Compressing …");
    void act(compress(id));
  };
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState !== "visible") return;
      void list();
      if (watched) void sessions();
    }, 15_000);
    return () => clearInterval(timer);
  }, [watched === null]);
  return (
    <nav className="sidebar" aria-label="Threads" id="sidebar">
      <div className="row sidebar-head">
        <strong className="brand">Hermes</strong>
        <button
          type="button"
          className="primary"
          onClick={() => {
            goTo(`#/new/${Date.now()}`);
            onLeave();
          }}
        >
          <Icon name="plus" /> New
        </button>
      </div>
      <input
        type="search"
        value={query}
        onChange={(event) => search(event.target.value)}
        placeholder="Search threads"
        aria-label="Search threads"
      />
      <ul className="threads">
        {threads.map((thread) => (
          <li key={thread.threadId} className={open && !open.readOnly && open.id === thread.threadId ? "current" : ""}>
            <a
              href={`#/t/${encodeURIComponent(thread.threadId)}`}
              aria-current={open?.id === thread.threadId ? "page" : undefined}
              onClick={onLeave}
            >
              <span className="title">{thread.title || "Untitled"}</span>
              {open && !open.readOnly && open.id === thread.threadId ? (
                <OpenStatus updatedAt={thread.updatedAt} />
              ) : (
                <Status status={thread.status} updatedAt={thread.updatedAt} />
              )}
            </a>
            <Menu label={`Actions for ${thread.title || "this thread"}`}>
              <button type="button" onClick={() => setAsking({ what: "rename", thread })}>
                Rename
              </button>
              <button type="button" onClick={() => void act(branch(thread.threadId))}>
                Branch
              </button>
              <button type="button" onClick={() => shrink(thread.threadId)}>
                Compress
              </button>
              <button type="button" onClick={() => void act(change(thread.threadId, { archived: !thread.archived }))}>
                {thread.archived ? "Bring back" : "Archive"}
              </button>
              <button type="button" className="danger" onClick={() => setAsking({ what: "delete", thread })}>
                Delete
              </button>
            </Menu>
          </li>
        ))}
        {!threads.length && (
          <li className="muted none">{listing ? "Loading …" : query ? "Nothing found." : "No threads yet."}</li>
        )}
        {next && (
          <li>
            <button type="button" className="quiet" onClick={() => void list(true)}>
              More
            </button>
          </li>
        )}
      </ul>
      {said_ && (
        <p className="notice row" role="status">
          <span>{said_}</span>
          <button type="button" className="quiet" onClick={() => setSaid("")}>
            Dismiss
          </button>
        </p>
      )}
      {watched && <Watched sessions={watched} onLeave={onLeave} />}
      <label className="row small archived">
        <input type="checkbox" checked={archived} onChange={(event) => showArchived(event.target.checked)} /> Archived
      </label>
      {asking?.what === "rename" && (
        <Rename thread={asking.thread} onClose={() => setAsking(null)} act={act} />
      )}
      {asking?.what === "delete" && (
        <Dialog title="Delete this thread?" onClose={() => setAsking(null)}>
          <p>“{asking.thread.title || "Untitled"}” and its session in Hermes are deleted for good.</p>
          <form method="dialog" className="row end">
            <button>Keep</button>
            <button className="danger" onClick={() => void act(remove(asking.thread.threadId))}>
              Delete
            </button>
          </form>
        </Dialog>
      )}
    </nav>
  );
}

type StatusProps = { status: ThreadSummary["status"]; updatedAt: number };

function Status({ status, updatedAt }: StatusProps) {
  return (
    <span className="muted small">
      {status !== "idle" && <span className={`dot ${status}`} />}
      {status === "parked" ? "waits for you" : status === "running" ? "running" : ago(updatedAt)}
    </span>
  );
}

/** The open thread's own status is newer than the list's. */
function OpenStatus({ updatedAt }: { updatedAt: number }) {
  const status = useThread((state) => (state.asked.length ? "parked" : state.running ? "running" : "idle"));
  return <Status status={status} updatedAt={updatedAt} />;
}

type RenameProps = { thread: ThreadSummary; onClose: () => void; act: (work: Promise<unknown>) => void };

function Rename({ thread, onClose, act }: RenameProps) {
  const [title, setTitle] = useState(thread.title);
  return (
    <Dialog title="Rename" onClose={onClose}>
      <form
        method="dialog"
        onSubmit={() => {
          if (title.trim() && title.trim() !== thread.title) act(change(thread.threadId, { title: title.trim() }));
        }}
      >
        <input value={title} maxLength={200} onChange={(event) => setTitle(event.target.value)} aria-label="Title" autoFocus />
        <p className="row end">
          <button type="button" onClick={(event) => event.currentTarget.closest("dialog")?.close()}>
            Cancel
          </button>
          <button className="primary">Rename</button>
        </p>
      </form>
    </Dialog>
  );
}

function Watched({ sessions, onLeave }: { sessions: SessionSummary[]; onLeave: () => void }) {
  const open = useConsole((state) => state.open);
  return (
    <details className="watched">
      <summary>
        <Icon name="eye" /> Other platforms ({sessions.length})
      </summary>
      <ul className="threads">
        {sessions.map((session) => (
          <li key={session.id} className={open?.readOnly && open.id === session.id ? "current" : ""}>
            <a href={`#/s/${encodeURIComponent(session.id)}`} onClick={onLeave}>
              <span className="title">{session.title || session.chatName || session.userName || session.id}</span>
              <span className="muted small">
                {session.status === "running" && <span className="dot running" />}
                {session.platform} · {ago(session.updatedAt)}
              </span>
            </a>
          </li>
        ))}
        {!sessions.length && <li className="muted none">None.</li>}
      </ul>
    </details>
  );
}

function ago(milliseconds: number): string {
  const minutes = Math.floor((Date.now() - milliseconds) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ago`;
  return new Date(milliseconds).toLocaleDateString();
}
