/** The tools that this page offers the model, to show how a client's tools work. */

export const COLOR = "pick_color";
export const CHART = "show_chart";

const TOOLS = [
  {
    name: COLOR,
    description: "Ask the user for a colour. Returns it as a hex code.",
    parameters: {
      type: "object",
      properties: { question: { type: "string", description: "What the colour is for." } },
    },
  },
  {
    name: CHART,
    description: "Show the user a bar chart.",
    parameters: {
      type: "object",
      properties: {
        title: { type: "string" },
        bars: {
          type: "array",
          items: {
            type: "object",
            properties: { label: { type: "string" }, value: { type: "number" } },
            required: ["label", "value"],
          },
        },
      },
      required: ["bars"],
    },
  },
];

export const clientTools = () => TOOLS;

export type Bar = { label: string; value: number };

/** The bars of a chart call; empty while its arguments are not whole. */
export function barsOf(args: unknown): Bar[] {
  const bars = (args as { bars?: unknown } | null)?.bars;
  if (!Array.isArray(bars)) return [];
  return bars
    .filter((bar) => bar && Number.isFinite(Number(bar.value)))
    .slice(0, 40)
    .map((bar) => ({ label: String(bar.label ?? ""), value: Number(bar.value) }));
}
