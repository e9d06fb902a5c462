/** The page as a whole: who calls, what the server can do, which threads there are, which one is open. */
import { create } from "zustand";
import {
  ApiError,
  type Command,
  type SessionSummary,
  type ThreadSummary,
  api,
  hasToken,
  newId,
  said,
  setToken,
} from "./api";
import { addressed, askCapabilities } from "./early";
import { OpenThread } from "./thread";

type Capabilities = {
  identity?: { version?: string };
  custom?: { hermes?: { access?: string; observe?: boolean; maxAttachmentBytes?: number; maxAttachments?: number } };
};

export type Access = "asking" | "token" | "pairing" | "in" | "offline";

type ConsoleState = {
  access: Access;
  problem: string;
  capabilities: Capabilities | null;
  threads: ThreadSummary[];
  total: number;
  next: string | null;
  archived: boolean;
  query: string;
  listing: boolean;
  sessions: SessionSummary[] | null;
  commands: Command[];
  open: OpenThread | null;
};

export const useConsole = create<ConsoleState>(() => ({
  access: "asking",
  problem: "",
  capabilities: null,
  threads: [],
  total: 0,
  next: null,
  archived: false,
  query: "",
  listing: true,
  sessions: null,
  commands: [],
  open: null,
}));

const { setState: set, getState: get } = useConsole;

/** Find out whether this caller may use the agent. */
export async function enter(): Promise<void> {
  if (get().access === "asking" && addressed()) route(); // it need not wait for the answer
  try {
    const capabilities = await askCapabilities<Capabilities>();
    set({ capabilities });
    if (capabilities.custom?.hermes?.access) return stay("pairing");
    set({ access: "in", problem: "" });
    route();
    void list();
    if (capabilities.custom?.hermes?.observe) void sessions();
    void api<{ commands: Command[] }>("/agui/commands").then(
      ({ commands }) => set({ commands }),
      () => undefined,
    );
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      const wrong = hasToken() && error.code === "invalid_token";
      return stay("token", wrong ? error.message : "");
    }
    stay(error instanceof ApiError && error.status === 0 ? "offline" : "token", said(error));
  }
}

/** Before the door: no thread is open. */
function stay(access: Access, problem = ""): void {
  get().open?.close();
  set({ access, problem, open: null });
}

export async function signIn(token: string, keep: boolean): Promise<void> {
  setToken(token, keep);
  get().open?.close();
  set({ access: "asking", open: null, sessions: null, threads: [] });
  await enter();
}

// -- the lists -----------------------------------------------------------------------------------------------------

type Page = { threads: ThreadSummary[]; total: number; next: string | null };
let asked = 0;

export async function list(more = false): Promise<void> {
  const { query, archived, next, threads } = get();
  const turn = ++asked;
  const search = new URLSearchParams({ limit: "50" });
  if (query) search.set("q", query);
  if (archived) search.set("archived", "1");
  if (more && next) search.set("before", next);
  try {
    const page = await api<Page>(`/agui/threads?${search}`);
    if (turn !== asked) return; // a newer question was asked meanwhile
    set({ threads: more ? [...threads, ...page.threads] : page.threads, total: page.total, next: page.next, listing: false });
  } catch {
    set({ listing: false });
  }
}

let waiting = 0;

/** Read the list soon: several things change it at once. */
export function listSoon(): void {
  window.clearTimeout(waiting);
  waiting = window.setTimeout(() => void list(), 300);
}

export function search(query: string): void {
  set({ query });
  listSoon();
}

export function showArchived(archived: boolean): void {
  set({ archived });
  void list();
}

/** Other platforms' sessions: there for the owner only, and where the operator lets them be watched. */
export async function sessions(): Promise<void> {
  try {
    const page = await api<{ sessions: SessionSummary[] }>("/agui/sessions?limit=100");
    set({ sessions: page.sessions.filter((one) => one.platform !== "agui") });
  } catch {
    set({ sessions: null });
  }
}

// -- the open thread -----------------------------------------------------------------------------------------------

export const goTo = (address: string) => {
  location.hash = address;
};
export const goToThread = (id: string) => goTo(`#/t/${encodeURIComponent(id)}`);

/** Open what the address names. */
export function route(): void {
  const named = addressed();
  const wanted = named?.id ?? "";
  const { open } = get();
  if (open && open.id === wanted && open.readOnly === (named?.kind === "session")) return;
  open?.close();
  const fresh = new OpenThread(wanted || newId("thread"), named?.kind ?? "thread", () => {
    if (!get().archived && !wanted && location.hash !== `#/t/${encodeURIComponent(fresh.id)}`) {
      history.replaceState(null, "", `#/t/${encodeURIComponent(fresh.id)}`); // it exists now
    }
    listSoon();
  });
  set({ open: fresh });
  if (wanted) void fresh.follow();
}

export async function change(id: string, part: { title?: string; archived?: boolean }): Promise<void> {
  const { open } = get();
  if (part.title && open?.id === id && !open.readOnly) await open.rename(part.title);
  else await api(`/agui/threads/${encodeURIComponent(id)}`, "PATCH", part);
  await list();
}

export async function remove(id: string): Promise<void> {
  await api(`/agui/threads/${encodeURIComponent(id)}`, "DELETE");
  if (get().open?.id === id) goTo("#/new");
  await list();
}

export async function branch(id: string, kind: "thread" | "session" = "thread"): Promise<void> {
  const made = await api<{ threadId: string }>(`/agui/${kind}s/${encodeURIComponent(id)}/branch`, "POST", {});
  goToThread(made.threadId);
  await list();
}

/** Go on with another platform's session itself. The thread says what the user should know of it. */
export async function resume(id: string): Promise<void> {
  const made = await api<{ threadId: string; notice: string }>(
    `/agui/sessions/${encodeURIComponent(id)}/resume`,
    "POST",
    {},
  );
  goToThread(made.threadId);
  route(); // now, not with the event of the address
  get().open?.tell(made.notice);
  await list();
}

export async function compress(id: string): Promise<string> {
  const made = await api<{ text: string }>(`/agui/threads/${encodeURIComponent(id)}/compress`, "POST", {});
  return made.text;
}
