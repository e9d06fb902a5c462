/** The server's API: the token, JSON calls with errors as sentences, and the streams. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

const KEY = "hermes-agui.token";
let token = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";

export const hasToken = () => token !== "";

/** Use this token from now on; `keep` over restarts of the browser. An empty one forgets it. */
export function setToken(value: string, keep = false) {
  token = value;
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (value) (keep ? localStorage : sessionStorage).setItem(KEY, value);
}

function headers(more: Record<string, string> = {}): Record<string, string> {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function problem(response: Response): Promise<ApiError> {
  const body = await response.json().catch(() => ({}));
  const code = typeof body.code === "string" ? body.code : `http_${response.status}`;
  const detail = typeof body.detail === "string" ? body.detail : `The server answered ${response.status}.`;
  return new ApiError(response.status, code, detail);
}

async function send(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "offline", "The server cannot be reached.");
  }
  if (!response.ok) throw await problem(response);
  return response;
}

/** A JSON call. Throws ApiError; status 0 when the server cannot be reached. */
export async function api<T = unknown>(
  path: string,
  method = "GET",
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  const init: RequestInit = { method, headers: headers(), signal: signal ?? null };
  if (body !== undefined) {
    init.headers = headers({ "Content-Type": "application/json" });
    init.body = JSON.stringify(body);
  }
  const response = await send(path, init);
  return (await response.json()) as T;
}

/** Open a server-sent-events stream; resolves when its headers are there. */
export function stream(path: string, signal: AbortSignal, lastEventId = "", body?: unknown): Promise<Response> {
  const more: Record<string, string> = { Accept: "text/event-stream" };
  if (lastEventId) more["Last-Event-ID"] = lastEventId;
  if (body === undefined) return send(path, { headers: headers(more), signal });
  more["Content-Type"] = "application/json";
  return send(path, { method: "POST", headers: headers(more), body: JSON.stringify(body), signal });
}

/** An id; `crypto.randomUUID` is missing on plain HTTP beyond this machine. */
export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `${prefix}-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** A token of this browser's own making: a device, which the operator lets in by its pairing code. */
export const newToken = () => `${newId("browser")}${newId("")}`;

/** An address of this server as a path; empty for one of elsewhere, which the page never loads by itself. */
export function here(address: string | undefined): string {
  try {
    const url = new URL(address ?? "", location.href);
    return address && url.origin === location.origin ? url.pathname + url.search : "";
  } catch {
    return "";
  }
}

export const said = (error: unknown) => (error instanceof Error ? error.message : String(error));

export type ThreadSummary = {
  threadId: string;
  title: string;
  createdAt: number;
  updatedAt: number;
  messageCount: number;
  archived: boolean;
  status: "idle" | "running" | "parked";
};

export type SessionSummary = {
  id: string;
  platform: string;
  chatName: string;
  userName: string;
  title: string;
  updatedAt: number;
  messageCount: number;
  status: "idle" | "running";
};

/** What a parked turn waits for (`interrupts.py`). */
export type Asked = {
  id: string;
  reason: string;
  message: string;
  toolCallId?: string;
  expiresAt?: string;
  responseSchema?: { properties?: Record<string, { examples?: string[]; enum?: string[] }> };
  metadata?: { hermes?: { kind: AskedKind; choices: string[]; command?: string; text?: string; description?: string } };
  closed?: string;
};
export type AskedKind = "approval" | "clarify" | "confirm" | "client_tool";

export type Command = { name: string; description?: string; args_hint?: string; argsHint?: string };

/** A run's failure as it is shown. */
export function readRunError(event: unknown): { code: string; message: string } {
  const { code, message } = event as { code?: string; message?: string };
  return { code: code ?? "error", message: message ?? "The run failed." };
}
