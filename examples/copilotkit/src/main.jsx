import { HttpAgent } from "@ag-ui/client";
import { CopilotChat, CopilotKitProvider, useAgent, useFrontendTool, useInterrupt } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";
import "./style.css";

const direct = new URLSearchParams(location.search).has("direct");
const provider = direct
  ? { selfManagedAgents: { hermes: new HttpAgent({ url: "/agui" }) } }
  : { runtimeUrl: "/api/copilotkit" };

function App() {
  const [color, setColor] = useState("#f4f4f8");

  // A tool that runs in this page: the model calls it, the page changes.
  useFrontendTool({
    name: "set_background",
    description: "Set the background colour of the page.",
    parameters: z.object({ color: z.string().describe("A CSS colour") }),
    handler: async ({ color }) => {
      setColor(color);
      return `The background is ${color} now.`;
    },
  });

  // Whatever Hermes asks a person: approvals of dangerous commands, confirmations, questions.
  useInterrupt({
    agentId: "hermes",
    render: ({ interrupt, resolve }) => {
      const { kind, choices = [], command } = interrupt.metadata?.hermes ?? {};
      return (
        <section className="asked" aria-label="The agent asks">
          <p>{interrupt.message}</p>
          {command && <pre>{command}</pre>}
          {choices.map((choice) => (
            <button key={choice} onClick={() => resolve(kind === "clarify" ? { answer: choice } : { choice })}>
              {choice}
            </button>
          ))}
        </section>
      );
    },
  });

  return (
    <main style={{ background: color }}>
      <Shared />
      <CopilotChat agentId="hermes" className="chat" />
    </main>
  );
}

// State that the agent and the page both change; Hermes's own part of it stands under /hermes.
function Shared() {
  const { agent } = useAgent({ agentId: "hermes" });
  const state = agent.state ?? {};
  const todos = state.hermes?.todos ?? [];
  return (
    <aside>
      <h1>Hermes in CopilotKit</h1>
      <label>
        City (shared state)
        <input value={state.city ?? ""} onChange={(event) => agent.setState({ ...state, city: event.target.value })} />
      </label>
      <p>{state.hermes?.model}</p>
      <ol>
        {todos.map((todo) => (
          <li key={todo.id}>
            {todo.content}: {todo.status}
          </li>
        ))}
      </ol>
    </aside>
  );
}

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider {...provider} showDevConsole={false}>
    <App />
  </CopilotKitProvider>,
);
