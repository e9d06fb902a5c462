/** The raw events of the open thread, as they came. */
import { useMemo, useState } from "react";
import { useOpenThread, useThread } from "../context";
import { CopyButton, Icon } from "./bits";

const SHOWN = 300;

export function Inspector({ onClose }: { onClose: () => void }) {
  const thread = useOpenThread();
  const counted = useThread((state) => state.rawCount);
  const raw = useThread((state) => state.raw);
  const [filter, setFilter] = useState("");
  const found = useMemo(() => {
    const wanted = filter.trim().toLowerCase();
    return wanted ? raw.filter((one) => JSON.stringify(one.event).toLowerCase().includes(wanted)) : [...raw];
  }, [counted, raw, filter]);
  const lines = () => found.map((one) => JSON.stringify(one.event)).join("\n");
  return (
    <aside className="inspector" aria-label="Event inspector">
      <header className="row">
        <h2>Events</h2>
        <span className="muted small">{found.length}</span>
        <CopyButton text={lines} label="Copy as JSON lines" />
        <button type="button" className="round quiet" aria-label="Close the inspector" onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <input
        type="search"
        value={filter}
        onChange={(event) => setFilter(event.target.value)}
        placeholder="Filter"
        aria-label="Filter events"
      />
      <ol className="events" key={thread.id}>
        {found.slice(-SHOWN).map((one, index) => (
          <li key={`${one.id}-${one.at}-${index}`}>
            <details>
              <summary>
                <span className="muted">{new Date(one.at).toLocaleTimeString([], { hour12: false })}</span> {one.event.type}
              </summary>
              <pre tabIndex={0}>{JSON.stringify(one.event, null, 2)}</pre>
            </details>
          </li>
        ))}
        {!found.length && <li className="muted none">Nothing yet.</li>}
      </ol>
    </aside>
  );
}
