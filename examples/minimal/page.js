import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: "/agui", threadId: localStorage.threadId ??= crypto.randomUUID() });
const list = document.querySelector("#messages");
const form = document.querySelector("form");

const show = (messages) =>
  list.replaceChildren(
    ...messages
      .filter((message) => message.content && ["user", "assistant"].includes(message.role))
      .map((message) => {
        const item = document.createElement("li");
        item.textContent = `${message.role}: ${message.content}`;
        return item;
      }),
  );
agent.subscribe({ onMessagesChanged: ({ messages }) => show(messages) });

// The thread as the gateway has it: a reload shows the same messages.
const known = await fetch(`/agui/threads/${agent.threadId}`);
if (known.ok) agent.setMessages((await known.json()).messages);
show(agent.messages);

/** What the agent asks a person (an approval, a question) ends the run; the next one answers it. */
const ask = ({ id, message, metadata }) => {
  const answer = prompt(`${message}\n${metadata?.hermes?.choices?.join(", ") ?? ""}`);
  if (answer === null) return { interruptId: id, status: "cancelled" };
  return { interruptId: id, status: "resolved", payload: metadata?.hermes?.kind === "clarify" ? { answer } : { choice: answer } };
};

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: form.text.value });
  form.reset();
  await agent.runAgent();
  while (agent.pendingInterrupts.length) await agent.runAgent({ resume: agent.pendingInterrupts.map(ask) });
});
