/** Before the console: a token is needed, or this device is not known yet and must be paired. */
import { type FormEvent, useEffect, useState } from "react";
import { hasToken, newId, newToken, said, stream } from "../api";
import { enter, signIn, useConsole } from "../console";
import { readRun } from "../feed";
import { Markdown } from "./Markdown";

export function SignIn() {
  const problem = useConsole((state) => state.problem);
  const offline = useConsole((state) => state.access === "offline");
  const [token, setToken] = useState("");
  const [keep, setKeep] = useState(false);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (token.trim()) void signIn(token.trim(), keep);
  };
  if (offline) {
    return (
      <Door title="The server cannot be reached">
        <p>Is the gateway running?</p>
        <button type="button" className="primary" onClick={() => void enter()}>
          Try again
        </button>
      </Door>
    );
  }
  return (
    <Door title="Sign in">
      <form onSubmit={submit}>
        <label>
          Token
          <input
            type="password"
            autoComplete="current-password"
            value={token}
            onChange={(event) => setToken(event.target.value)}
            autoFocus
          />
        </label>
        <label className="row">
          <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.target.checked)} />
          Keep it in this browser
        </label>
        {problem && (
          <p className="bad" role="alert">
            {problem}
          </p>
        )}
        <p className="row">
          <button type="submit" className="primary" disabled={!token.trim()}>
            Sign in
          </button>
          <button type="button" className="quiet" onClick={() => void signIn(newToken(), true)}>
            Pair this browser instead
          </button>
        </p>
      </form>
    </Door>
  );
}

/** A first message brings a code; once the operator has approved it, the page goes on by itself. */
export function Pairing() {
  const [told, setTold] = useState("");
  const [busy, setBusy] = useState(false);
  const [other, setOther] = useState(false);
  useEffect(() => {
    const timer = setInterval(() => void enter(), 3000);
    return () => clearInterval(timer);
  }, []);
  const ask = async () => {
    setBusy(true);
    try {
      setTold(await askForCode());
    } catch (error) {
      setTold(said(error));
    } finally {
      setBusy(false);
    }
  };
  if (other) return <SignIn />;
  return (
    <Door title="This browser is not known yet">
      <p>The operator lets it in by approving a code on the machine that runs the gateway.</p>
      {told ? (
        <div role="status" className="pairing">
          <Markdown text={told} />
          <p className="muted">This page goes on as soon as it is approved.</p>
        </div>
      ) : (
        <button type="button" className="primary" disabled={busy} onClick={() => void ask()}>
          {busy ? "Asking …" : "Ask for a code"}
        </button>
      )}
      <p>
        <button type="button" className="quiet" onClick={() => setOther(true)}>
          {hasToken() ? "Use another token" : "Use a token instead"}
        </button>
      </p>
    </Door>
  );
}

async function askForCode(): Promise<string> {
  const response = await stream("/agui", new AbortController().signal, "", {
    threadId: newId("pairing"),
    runId: newId("run"),
    protocolVersion: "1.0",
    messages: [{ id: newId("msg"), role: "user", content: "Hello" }],
  });
  let text = "";
  await readRun(response, (event) => {
    const one = event as { type: string; delta?: string; message?: string; name?: string; value?: { text?: string } };
    if (one.type === "TEXT_MESSAGE_CONTENT") text += one.delta ?? "";
    if (one.type === "RUN_ERROR") text += `${text ? "\n\n" : ""}${one.message ?? ""}`;
  });
  return text || "The server gave no code; ask its operator.";
}

function Door({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <main className="door">
      <section className="card">
        <h1>{title}</h1>
        {children}
      </section>
    </main>
  );
}
