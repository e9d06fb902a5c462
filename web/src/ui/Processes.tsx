/** The background processes of the thread, each with its end; there when there are any. */
import { useEffect, useState } from "react";
import { useOpenThread, useThread } from "../context";
import type { Process } from "../thread";
import { Dialog } from "./bits";
import { Code } from "./Markdown";

export function Processes() {
  const thread = useOpenThread();
  const ready = useThread((state) => state.phase === "ready");
  const running = useThread((state) => state.running);
  const [found, setFound] = useState<Process[]>([]);
  const [open, setOpen] = useState(false);
  const read = () =>
    thread.processes().then(
      ({ processes }) => setFound(processes),
      () => undefined,
    );
  useEffect(() => {
    if (!ready) return;
    void read();
    const timer = open ? setInterval(() => void read(), 2000) : undefined; // what they say, while somebody looks
    return () => clearInterval(timer);
  }, [ready, running, open]);
  if (!found.length) return null;
  const works = found.filter((one) => one.exitCode === undefined && one.status === "running").length;
  return (
    <>
      <button type="button" className="quiet" onClick={() => setOpen(true)}>
        Processes ({works || found.length})
      </button>
      {open && (
        <Dialog title="Background processes" onClose={() => setOpen(false)}>
          {found.map((one) => (
            <section key={one.id} className="process">
              <p className="row">
                <code>{one.command ?? one.id}</code>
                <span className="muted">{one.exitCode === undefined ? one.status : `exit code ${one.exitCode}`}</span>
                {one.exitCode === undefined && (
                  <button type="button" className="danger" onClick={() => void thread.stopProcess(one.id).then(read, read)}>
                    Stop
                  </button>
                )}
              </p>
              {one.output && <Code text={one.output} />}
            </section>
          ))}
          <form method="dialog" className="row end">
            <button>Close</button>
          </form>
        </Dialog>
      )}
    </>
  );
}
