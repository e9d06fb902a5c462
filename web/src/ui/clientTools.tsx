/** The page's own tools at work: a colour that the user picks, a chart. */
import { useEffect, useState } from "react";
import type { Asked } from "../api";
import { useOpenThread } from "../context";
import { barsOf } from "../tools";

export function ColorAnswer({ args, asked, result }: { args: unknown; asked?: Asked; result?: string }) {
  const thread = useOpenThread();
  const [color, setColor] = useState("#4f46e5");
  const question = String((args as { question?: unknown } | null)?.question ?? "Pick a colour");
  const give = (payload: unknown) => thread.answer(asked!, payload).catch((error) => thread.fail(error));
  return (
    <section className="card" data-tool="pick_color" aria-label="The agent asks for a colour">
      <h4>{question}</h4>
      {asked && !thread.readOnly ? (
        <div className="row">
          <input type="color" value={color} onChange={(event) => setColor(event.target.value)} aria-label="Colour" />
          <code>{color}</code>
          <button type="button" className="primary" onClick={() => void give({ content: color })}>
            Use this colour
          </button>
          <button type="button" onClick={() => void give({ error: "The user did not want to pick a colour." })}>
            Decline
          </button>
        </div>
      ) : (
        <p className="row">
          {/^#[0-9a-f]{6}$/i.test(result ?? "") && (
            <svg className="swatch" viewBox="0 0 1 1" aria-hidden="true">
              <rect width="1" height="1" fill={result} />
            </svg>
          )}
          <span className="muted">{result ?? "No colour was picked."}</span>
        </p>
      )}
    </section>
  );
}

export function Chart({ args, asked }: { args: unknown; asked?: Asked }) {
  const thread = useOpenThread();
  const bars = barsOf(args);
  const title = String((args as { title?: unknown }).title ?? "Chart");
  const waiting = asked !== undefined && !thread.readOnly;
  useEffect(() => {
    // Drawn is done. Of two windows one answers first; the other's answer is one too many and no failure.
    if (waiting) void thread.answer(asked, { content: `The chart is shown, with ${bars.length} bars.` }).catch(() => null);
  }, [waiting]);
  const most = Math.max(...bars.map((bar) => Math.abs(bar.value)), 1e-9);
  return (
    <figure className="card chart" data-tool="show_chart">
      <figcaption>{title}</figcaption>
      <svg
        viewBox={`0 0 420 ${bars.length * 34}`}
        role="img"
        aria-label={`${title}: ${bars.map((bar) => `${bar.label} ${bar.value}`).join(", ")}`}
      >
        {bars.map((bar, index) => {
          const width = Math.max(2, (Math.abs(bar.value) / most) * 230);
          return (
            <g key={index} transform={`translate(0 ${index * 34})`}>
              <text x="112" y="21" textAnchor="end">
                {bar.label.length > 14 ? `${bar.label.slice(0, 13)}…` : bar.label}
              </text>
              <rect x="122" y="5" width={width} height="24" rx="4" />
              <text x={130 + width} y="21">
                {bar.value}
              </text>
            </g>
          );
        })}
      </svg>
    </figure>
  );
}
