/** An event feed as the events of an AG-UI agent: one logical stream over reconnections, deltas gathered by frame. */
import { AbstractAgent } from "@ag-ui/client";
import type { BaseEvent } from "@ag-ui/client";
import { createParser } from "eventsource-parser";
import { Observable } from "rxjs";
import { ApiError, api, stream } from "./api";

const GATHER_MS = 32; // the reducer copies the messages for each event it is given
const RETRY_MS = [250, 500, 1000, 2000, 4000, 8000];

/** The feed cannot go on where it broke off: the reader must start over. */
export class StartOver extends Error {}

export type FeedWatch = {
  /** Each event as it came, with its id. */
  raw(event: BaseEvent, id: string): void;
  connection(open: boolean): void;
};

/**
 * Follows one thread (or one session of another platform): `connectAgent()` goes on until `close()`, or until
 * the reader must start over. Who asked for a run makes no difference: this window, another one, or the gateway.
 */
export class FeedAgent extends AbstractAgent {
  private first: Response | null = null;
  private lastId = "";

  constructor(
    threadId: string,
    private readonly path: string,
    private readonly abort: AbortController,
    private readonly watch: FeedWatch,
  ) {
    super({ threadId });
  }

  /** Connect. `feed`: the stream of `path`'s events, which ends with `abort`. */
  async open(feed: Promise<Response>): Promise<void> {
    this.first = await feed;
    this.watch.connection(true);
  }

  close() {
    this.abort.abort();
    void this.detachActiveRun();
  }

  run(): Observable<BaseEvent> {
    throw new Error("Runs are started by POST /agui; their events come by the feed.");
  }

  protected connect(): Observable<BaseEvent> {
    return new Observable((subscriber) => {
      let gathered: BaseEvent[] = [];
      let timer = 0;
      const flush = () => {
        timer = 0;
        const batch = merged(gathered);
        gathered = [];
        for (const event of batch) subscriber.next(event);
      };
      const take = (event: BaseEvent, id: string) => {
        if (id) this.lastId = id;
        this.watch.raw(event, id);
        gathered.push(event);
        if (!timer) timer = window.setTimeout(flush, GATHER_MS);
      };
      this.follow(take).then(
        () => subscriber.complete(),
        (error) => {
          flush();
          if (this.abort.signal.aborted || error instanceof StartOver) subscriber.complete();
          else subscriber.error(error);
        },
      );
      return () => window.clearTimeout(timer);
    });
  }

  private async follow(take: (event: BaseEvent, id: string) => void): Promise<void> {
    let response = this.first;
    this.first = null;
    for (;;) {
      try {
        if (response?.body) await read(response.body, take);
      } catch (error) {
        if (this.abort.signal.aborted) throw error;
      }
      this.watch.connection(false);
      response = await this.again();
      this.watch.connection(true);
    }
  }

  /** Go on behind the last event, if its turn is still the one that runs; else everything may be new. */
  private async again(): Promise<Response> {
    for (let tries = 0; ; tries++) {
      await pause(RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]!, this.abort.signal);
      try {
        const now = await api<{ turn: { id: string } | null }>(this.path);
        const turn = this.lastId.slice(0, this.lastId.lastIndexOf("."));
        if (!now.turn || !turn || now.turn.id !== turn) throw new StartOver("The thread went on without this page.");
        return await stream(`${this.path}/events`, this.abort.signal, this.lastId);
      } catch (error) {
        const away = error instanceof ApiError && (error.status === 0 || error.status >= 500);
        if (!away) throw error;
      }
    }
  }
}

async function read(body: ReadableStream<Uint8Array>, take: (event: BaseEvent, id: string) => void): Promise<void> {
  let id = "";
  const parser = createParser({
    onEvent: (message) => {
      id = message.id ?? id;
      take(JSON.parse(message.data) as BaseEvent, id);
    },
  });
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser.feed(value);
  }
}

/** The events of a run's own response, for what stands outside a thread (pairing). */
export async function readRun(response: Response, take: (event: BaseEvent) => void): Promise<void> {
  if (response.body) await read(response.body, take);
}

const DELTAS: Record<string, string> = {
  TEXT_MESSAGE_CONTENT: "messageId",
  REASONING_MESSAGE_CONTENT: "messageId",
  TOOL_CALL_ARGS: "toolCallId",
};

/** Adjacent deltas of one message as one. */
export function merged(events: BaseEvent[]): BaseEvent[] {
  const made: BaseEvent[] = [];
  for (const event of events) {
    const member = DELTAS[event.type];
    const last = made.at(-1) as (BaseEvent & Record<string, unknown>) | undefined;
    const now = event as BaseEvent & Record<string, unknown>;
    if (member && last?.type === now.type && last[member] === now[member] && !now.metadata && !last.metadata) {
      made[made.length - 1] = { ...last, delta: `${last.delta as string}${now.delta as string}` } as BaseEvent;
    } else made.push(event);
  }
  return made;
}

/** Until the time is over or the browser is online again. Rejects when aborted. */
function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      window.clearTimeout(timer);
      window.removeEventListener("online", end);
      signal.removeEventListener("abort", end);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = window.setTimeout(end, milliseconds);
    window.addEventListener("online", end);
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
  });
}
