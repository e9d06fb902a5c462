/** Files of the composer as AG-UI content parts, within what the server takes. */
import type { AppendMessage, AttachmentAdapter, CompleteAttachment, PendingAttachment } from "@assistant-ui/react";
import { newId } from "./api";
import { useConsole } from "./console";

/** `refused` hears why a file was not taken. */
export function attachments(refused: (error: Error) => void): AttachmentAdapter {
  return {
    accept: "*",
    async add({ file }): Promise<PendingAttachment> {
      const most = useConsole.getState().capabilities?.custom?.hermes?.maxAttachmentBytes;
      if (most !== undefined && file.size > most) {
        const error = new Error(`${file.name} is larger than ${Math.floor(most / 1_000_000)} MB, which this server takes.`);
        refused(error);
        throw error;
      }
      return {
        id: newId("file"),
        type: kindOf(file.type),
        name: file.name,
        contentType: file.type,
        file,
        status: { type: "requires-action", reason: "composer-send" },
      };
    },
    async remove() {},
    async send(attachment): Promise<CompleteAttachment> {
      const mimeType = attachment.contentType || "application/octet-stream";
      return {
        ...attachment,
        status: { type: "complete" },
        content: [{ type: "file", data: await base64(attachment.file), mimeType, filename: attachment.name }],
      };
    },
  };
}

const kindOf = (mimeType: string) =>
  (["image", "audio", "video"] as const).find((kind) => mimeType.startsWith(`${kind}/`)) ?? "document";

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^data:[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} could not be read.`));
    reader.readAsDataURL(file);
  });
}

/** A message of the kit as AG-UI content: its text, or parts where files came along. */
export function partsOf(message: AppendMessage): string | unknown[] {
  const text = message.content.map((part) => (part.type === "text" ? part.text : "")).join("\n");
  const files = (message.attachments ?? []).flatMap((attachment) => attachment.content ?? []);
  if (!files.length) return text;
  const parts: unknown[] = text.trim() ? [{ type: "text", text }] : [];
  for (const part of files) {
    if (part.type !== "file") continue;
    parts.push({
      type: kindOf(part.mimeType),
      source: { type: "data", value: part.data, mimeType: part.mimeType },
      metadata: { filename: part.filename },
    });
  }
  return parts;
}
