/** The agent's plan, from the shared state (`/hermes/todos`). */
import { useThread } from "../context";

type Todo = { id: string; content: string; status: string };

export function Plan() {
  const todos = useThread((state) => (state.state as { hermes?: { todos?: Todo[] } } | null)?.hermes?.todos);
  if (!Array.isArray(todos) || !todos.length) return null;
  const done = todos.filter((todo) => todo.status === "completed").length;
  const current = todos.find((todo) => todo.status === "in_progress");
  return (
    <details className="plan">
      <summary>
        <span>Plan</span>
        <span className="tool-brief">{current?.content ?? ""}</span>
        <span className="muted">
          {done} of {todos.length}
        </span>
        <progress value={done} max={todos.length} aria-label="Plan" />
      </summary>
      <ol>
        {todos.map((todo) => (
          <li key={todo.id} className={todo.status}>
            <span className="mark" aria-label={todo.status.replace("_", " ")} role="img" />
            {todo.content}
          </li>
        ))}
      </ol>
    </details>
  );
}
