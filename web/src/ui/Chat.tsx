/** The conversation, on the chat kit: its runtime is fed from our thread, which follows the server's feed. */
import {
  ActionBarPrimitive,
  type AppendMessage,
  AssistantRuntimeProvider,
  ComposerPrimitive,
  type DataMessagePartProps,
  MessagePrimitive,
  ThreadPrimitive,
  useAuiState,
  useExternalStoreRuntime,
} from "@assistant-ui/react";
import { type ComponentType, useEffect, useMemo, useRef, useState } from "react";
import { attachments, partsOf } from "../attachments";
import { useOpenThread, useThread } from "../context";
import { type Custom, type Group, Grouper } from "../parts";
import { Composer } from "./Composer";
import { Markdown } from "./Markdown";
import { AttachmentCard, MediaList, NoticeLine, Reasoning, SubagentCard, ToolCard } from "./cards";
import { Plan } from "./Plan";
import { Requests } from "./requests";
import { Icon } from "./bits";

/** Messages of the kit that are shown at first, and more each time: what is above is one press away. */
const SHOWN = 40;
const LOWEST = 56; // pixels of the lowest message, about: those that fill the window are drawn before the others

export function Chat() {
  const thread = useOpenThread();
  const grouper = useRef<Grouper>(null);
  grouper.current ??= new Grouper();
  const messages = useThread((state) => state.messages);
  const sending = useThread((state) => state.sending);
  const steered = useThread((state) => state.steered);
  const notices = useThread((state) => state.notices);
  const spent = useThread((state) => state.spent);
  const [shown, setShown] = useState(() => Math.min(Math.ceil(window.innerHeight / LOWEST), SHOWN));
  const groups = useMemo(
    () => grouper.current!.group({ messages, sending, steered, notices, spent }),
    [messages, sending, steered, notices, spent],
  );
  const visible = useMemo(() => groups.slice(-shown), [groups, shown]);
  const take = (work: Promise<void>) => work.catch((error) => thread.fail(error));
  const runtime = useExternalStoreRuntime<Group>({
    messages: visible,
    convertMessage: (group) => group.like,
    // The kit never holds a message back: while a turn runs, one is a word to it (`OpenThread.say`).
    isRunning: false,
    isDisabled: thread.readOnly,
    onNew: async (message: AppendMessage) => {
      try {
        await thread.say(partsOf(message));
      } catch (error) {
        thread.fail(error);
        const { composer } = runtime.thread;
        if (!composer.getState().text) composer.setText(textOf(message)); // it was not taken: nothing is lost
      }
    },
    onEdit: (message: AppendMessage) => take(thread.again(message.sourceId ?? "", textOf(message))),
    onReload: (parentId) => take(thread.again(parentId ?? "")),
    adapters: { attachments: useMemo(() => attachments((error) => thread.fail(error)), [thread]) },
  });
  const some = groups.length > 0;
  useEffect(() => {
    if (!some) return;
    let timer = 0;
    const drawn = () => {
      performance.mark("thread shown"); // for the bench
      setShown((now) => Math.max(now, SHOWN));
    };
    const frame = requestAnimationFrame(() => (timer = window.setTimeout(drawn)));
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
  }, [some]);
  const hidden = groups.length - Math.max(shown, SHOWN);
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Root className="chat">
        <ThreadPrimitive.Viewport className="viewport" tabIndex={0} aria-label="Conversation" role="log" aria-live="off">
          <div className="column">
            {hidden > 0 && (
              <button type="button" className="quiet earlier" onClick={() => setShown(Math.max(shown, SHOWN) + 2 * SHOWN)}>
                Show earlier messages ({hidden})
              </button>
            )}
            <Empty />
            <ThreadPrimitive.Messages components={MESSAGES} />
            <Working />
            <Requests />
            <Failure />
          </div>
          <ThreadPrimitive.ScrollToBottom className="to-bottom" aria-label="Scroll to the newest message">
            <Icon name="down" />
          </ThreadPrimitive.ScrollToBottom>
        </ThreadPrimitive.Viewport>
        <Plan />
        {!thread.readOnly && <Composer />}
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

const textOf = (message: AppendMessage) =>
  message.content.map((part) => (part.type === "text" ? part.text : "")).join("\n");

function Empty() {
  const phase = useThread((state) => state.phase);
  const none = useThread((state) => !state.messages.length && !state.sending.length);
  if (!none) return null;
  if (phase === "loading") return <p className="empty muted">Loading …</p>;
  if (phase === "gone") return null;
  return (
    <div className="empty">
      <h1>What can I do for you?</h1>
      <p className="muted">Ask something, drop a file, or type / for commands.</p>
    </div>
  );
}

function Working() {
  const running = useThread((state) => state.running);
  const sending = useThread((state) => state.sending.length > 0);
  const stopping = useThread((state) => state.stopping);
  if (!running && !sending) return null;
  return (
    <p className="working" role="status">
      <span className="dot running" /> {stopping ? "Stopping" : "Working"}
    </p>
  );
}

function Failure() {
  const thread = useOpenThread();
  const error = useThread((state) => state.error);
  if (!error) return null;
  return (
    <section className="card failure" role="alert">
      <p>{error.message}</p>
      <p className="row">
        <code className="muted">{error.code}</code>
        <button type="button" className="quiet" onClick={() => thread.dismiss()}>
          Dismiss
        </button>
      </p>
    </section>
  );
}

// -- messages ------------------------------------------------------------------------------------------------------

function UserMessage() {
  const thread = useOpenThread();
  const custom = useAuiState((state) => state.message.metadata.custom) as Partial<Custom>;
  return (
    <MessagePrimitive.Root className={`message user${custom.pending ? " pending" : ""}`} data-role="user">
      <div className="bubble">
        <MediaList media={custom.media ?? []} />
        <MessagePrimitive.Parts components={USER_PARTS} />
      </div>
      {custom.steer && <p className="muted small">told while it works</p>}
      {!thread.readOnly && !custom.pending && (
        <div className="actions">
          <ActionBarPrimitive.Edit className="quiet">Edit</ActionBarPrimitive.Edit>
          <ActionBarPrimitive.Copy className="quiet">Copy</ActionBarPrimitive.Copy>
        </div>
      )}
    </MessagePrimitive.Root>
  );
}

function EditMessage() {
  return (
    <ComposerPrimitive.Root className="message user editing">
      <ComposerPrimitive.Input className="bubble" aria-label="Edit your message" autoFocus />
      <div className="actions">
        <ComposerPrimitive.Cancel className="quiet">Cancel</ComposerPrimitive.Cancel>
        <ComposerPrimitive.Send className="primary">Send again</ComposerPrimitive.Send>
      </div>
    </ComposerPrimitive.Root>
  );
}

function AssistantMessage() {
  const thread = useOpenThread();
  const active = useThread((state) => state.running || state.asked.length > 0);
  return (
    <MessagePrimitive.Root className="message assistant" data-role="assistant">
      <MessagePrimitive.Parts components={PARTS} />
      {!active && (
        <div className="actions">
          {!thread.readOnly && <ActionBarPrimitive.Reload className="quiet">Regenerate</ActionBarPrimitive.Reload>}
          <ActionBarPrimitive.Copy className="quiet">Copy</ActionBarPrimitive.Copy>
        </div>
      )}
    </MessagePrimitive.Root>
  );
}

const MESSAGES = { UserMessage, AssistantMessage, UserEditComposer: EditMessage };
const USER_PARTS = { Text: ({ text }: { text: string }) => <p className="plain">{text}</p> };
const of = <T,>(component: ComponentType<DataMessagePartProps<T>>) => component as ComponentType<DataMessagePartProps>;
const PARTS = {
  Text: ({ text }: { text: string }) => <Markdown text={text} />,
  Reasoning,
  tools: { Override: ToolCard },
  data: {
    by_name: { subagent: of(SubagentCard), attachment: of(AttachmentCard), notice: of(NoticeLine) },
    Fallback: () => null,
  },
};
