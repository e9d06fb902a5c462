/** What the page asks first, asked before the rest of it is evaluated: the server works meanwhile. Imported first. */
import { api, stream } from "./api";

/** The thread or session that the address names; null for none. */
export function addressed(): { kind: "thread" | "session"; id: string } | null {
  const [, kind, id] = /^#\/([ts])\/(.+)$/.exec(location.hash) ?? [];
  return id ? { kind: kind === "s" ? "session" : "thread", id: safely(id) } : null;
}

function safely(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const pathOf = (kind: "thread" | "session", id: string) => `/agui/${kind}s/${encodeURIComponent(id)}`;

/** A feed and, once that is open, what the server tells of its thread: complete together. */
export type Opening = { abort: AbortController; feed: Promise<Response>; told: Promise<unknown> };

export function opening(path: string): Opening {
  const abort = new AbortController();
  const feed = stream(`${path}/events`, abort.signal);
  const told = feed.then(() => api(path, "GET", undefined, abort.signal));
  told.catch(() => undefined); // who takes the feed hears of it
  return { abort, feed, told };
}

const wanted = addressed();
let capabilities: Promise<unknown> | null = api("/agui/capabilities");
let first = wanted && { path: pathOf(wanted.kind, wanted.id), made: opening(pathOf(wanted.kind, wanted.id)) };
capabilities.catch(() => undefined);

/** What the server can do; the answer to the early question is given once. */
export function askCapabilities<T>(): Promise<T> {
  const asked = capabilities ?? api("/agui/capabilities");
  capabilities = null;
  return asked as Promise<T>;
}

/** The thread behind a path: the early one is given once, and only while it is what the address named. */
export function openEarly(path: string): Opening {
  const early = first;
  first = null;
  if (early?.path === path) return early.made;
  early?.made.abort.abort();
  return opening(path);
}
