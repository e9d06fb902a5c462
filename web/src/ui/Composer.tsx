/** Where the user writes: text, files, slash commands; while a turn runs, a word to it, and the stop button. */
import { AttachmentPrimitive, ComposerPrimitive, useAui, useAuiState } from "@assistant-ui/react";
import { type KeyboardEvent, useEffect, useMemo, useState } from "react";
import { useConsole } from "../console";
import { useOpenThread, useThread } from "../context";
import { Icon } from "./bits";

const MOST = 8;

export function Composer() {
  const thread = useOpenThread();
  const aui = useAui();
  const text = useAuiState((state) => state.composer.text);
  const running = useThread((state) => state.running);
  const parked = useThread((state) => state.asked.length > 0);
  const gone = useThread((state) => state.phase === "gone");
  const commands = useConsole((state) => state.commands);
  const [dismissed, setDismissed] = useState("");
  const [place, setPlace] = useState(0);
  const found = useMemo(() => {
    const typed = /^\/([\w-]*)$/.exec(text)?.[1];
    if (typed === undefined || text === dismissed) return [];
    const begin = commands.filter((one) => one.name.startsWith(typed));
    const inside = commands.filter((one) => typed && !one.name.startsWith(typed) && one.name.includes(typed));
    return [...begin, ...inside].slice(0, MOST);
  }, [text, commands, dismissed]);
  useEffect(() => setPlace(0), [text]);
  const choose = (name: string) => {
    aui.composer.setText(`/${name} `);
    document.querySelector<HTMLTextAreaElement>("#message")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!found.length || event.nativeEvent.isComposing) return;
    const exact = found[place]?.name === text.slice(1);
    if (event.key === "ArrowDown") setPlace((place + 1) % found.length);
    else if (event.key === "ArrowUp") setPlace((place + found.length - 1) % found.length);
    else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && !exact)) choose(found[place]!.name);
    else if (event.key === "Escape") setDismissed(text);
    else return;
    event.preventDefault();
  };
  const active = running || parked;
  return (
    <ComposerPrimitive.Root className="composer" aria-label="Message">
      <ComposerPrimitive.AttachmentDropzone className="dropzone">
        {found.length > 0 && (
          <ul className="commands" role="listbox" id="commands" aria-label="Commands">
            {found.map((command, index) => (
              <li
                key={command.name}
                id={`command-${index}`}
                role="option"
                aria-selected={index === place}
                onMouseDown={(event) => {
                  event.preventDefault();
                  choose(command.name);
                }}
              >
                <code>/{command.name}</code>
                <span>{command.description}</span>
              </li>
            ))}
          </ul>
        )}
        <div className="chips">
          <ComposerPrimitive.Attachments components={{ Attachment: Pending }} />
        </div>
        <div className="row writing">
          <ComposerPrimitive.AddAttachment className="round quiet" aria-label="Attach a file">
            <Icon name="clip" />
          </ComposerPrimitive.AddAttachment>
          <ComposerPrimitive.Input
            id="message"
            aria-label="Message"
            placeholder={running ? "Tell it something while it works" : "Message"}
            minRows={1}
            maxRows={10}
            autoFocus
            disabled={gone}
            onKeyDown={onKeyDown}
            role="combobox"
            aria-autocomplete="list"
            aria-expanded={found.length > 0}
            aria-controls="commands"
            aria-activedescendant={found.length ? `command-${place}` : undefined}
          />
          {active && (
            <button
              type="button"
              className="round danger"
              aria-label="Stop"
              title="Stop"
              onClick={() => void thread.stop().catch((error) => thread.fail(error))}
            >
              <Icon name="stop" />
            </button>
          )}
          <ComposerPrimitive.Send className="round primary" aria-label={running ? "Tell it" : "Send"}>
            <Icon name="send" />
          </ComposerPrimitive.Send>
        </div>
      </ComposerPrimitive.AttachmentDropzone>
    </ComposerPrimitive.Root>
  );
}

function Pending() {
  const file = useAuiState((state) => state.attachment.file);
  const [preview, setPreview] = useState("");
  useEffect(() => {
    if (!file?.type.startsWith("image/")) return;
    const url = URL.createObjectURL(file);
    setPreview(url);
    return () => URL.revokeObjectURL(url);
  }, [file]);
  return (
    <AttachmentPrimitive.Root className="chip">
      {preview ? <img src={preview} alt="" /> : <Icon name="clip" />}
      <AttachmentPrimitive.Name />
      <AttachmentPrimitive.Remove className="quiet" aria-label="Remove this file">
        <Icon name="close" />
      </AttachmentPrimitive.Remove>
    </AttachmentPrimitive.Root>
  );
}
