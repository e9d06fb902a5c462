/** Markdown as it streams: each top-level block is parsed again only when it changed. */
import { fromMarkdown } from "mdast-util-from-markdown";
import { type ReactNode, memo, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { here } from "../api";
import { CopyButton } from "./bits";

const MAX_HIGHLIGHTED = 20_000;

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const before = useRef<string[]>([]);
  const shown = usePaced(text, before.current.at(-1)?.length ?? 0);
  const blocks = useMemo(() => blocksOf(shown, before.current), [shown]);
  before.current = blocks;
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        <Block key={index} text={block} />
      ))}
    </div>
  );
});

const CHARACTERS_PER_MS = 80;

/**
 * The text, not oftener than its growing end can be drawn: that is parsed and laid out anew each time, so a block of
 * many pages would leave no time for anything else. One of some lines is never held back.
 */
function usePaced(text: string, last: number): string {
  const wait = Math.min(last / CHARACTERS_PER_MS, 500);
  const [kept, keep] = useState(text);
  const at = useRef(0);
  const held = wait > 32 && text !== kept && text.startsWith(kept);
  useEffect(() => {
    if (text === kept) return;
    const draw = () => {
      at.current = performance.now();
      keep(text);
    };
    if (!held) return draw();
    const timer = setTimeout(draw, Math.max(0, at.current + wait - performance.now()));
    return () => clearTimeout(timer);
  }, [text, kept, held, wait]);
  return held ? kept : text;
}

/** The top-level blocks. Text that was only added to can change no block but the last one of before. */
export function blocksOf(text: string, before: readonly string[]): string[] {
  const kept: string[] = [];
  let start = 0;
  for (const block of before.slice(0, -1)) {
    if (!text.startsWith(block, start)) break;
    kept.push(block);
    start += block.length;
  }
  const rest = text.slice(start);
  const starts = fromMarkdown(rest).children.map((node) => node.position?.start.offset ?? 0);
  if (!starts.length) return rest ? [...kept, rest] : kept;
  starts[0] = 0;
  return [...kept, ...starts.map((offset, index) => rest.slice(offset, starts[index + 1]))];
}

const Block = memo(function Block({ text }: { text: string }) {
  return (
    <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS}>
      {text}
    </ReactMarkdown>
  );
});

const PLUGINS = [remarkGfm];

const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noreferrer noopener">
      {children}
    </a>
  ),
  // A picture is shown from this server only: another one would learn that the page was read.
  img: ({ src, alt }) =>
    here(src as string) ? (
      <img src={here(src as string)} alt={alt ?? ""} loading="lazy" />
    ) : (
      <a href={src as string} target="_blank" rel="noreferrer noopener">
        {alt || (src as string)}
      </a>
    ),
  table: ({ children }) => (
    <div className="table" tabIndex={0} role="region" aria-label="Table">
      <table>{children}</table>
    </div>
  ),
  pre: ({ children }) => <>{children}</>,
  code: ({ className, children }) => {
    const text = String(children ?? "");
    const language = /language-([\w+#-]+)/.exec(className ?? "")?.[1] ?? "";
    if (!language && !text.includes("\n")) return <code>{children}</code>;
    return <Code text={text.replace(/\n$/, "")} language={language} />;
  },
};

type Highlight = (text: string, language: string) => ReactNode;
let highlight: Highlight | null = null; // its own chunk, loaded with the first code that is shown

export function Code({ text, language = "" }: { text: string; language?: string }) {
  const [ready, setReady] = useState(highlight !== null);
  useEffect(() => {
    if (ready) return;
    let there = true;
    void import("../highlight").then((module) => {
      highlight = module.highlight;
      if (there) setReady(true);
    });
    return () => {
      there = false;
    };
  }, [ready]);
  const settled = useDeferredValue(text);
  const coloured = ready && highlight && settled === text && text.length < MAX_HIGHLIGHTED;
  return (
    <figure className="code">
      <figcaption>
        <span>{language || "text"}</span>
        <CopyButton text={text} />
      </figcaption>
      <pre tabIndex={0}>
        <code>{coloured ? highlight!(text, language) : text}</code>
      </pre>
    </figure>
  );
}
