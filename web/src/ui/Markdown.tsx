/** Markdown as it streams: each top-level block is parsed again only when it changed. */
import { fromMarkdown } from "mdast-util-from-markdown";
import { type ReactNode, memo, useDeferredValue, useEffect, useRef, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { here } from "../api";
import { CopyButton } from "./bits";

const MAX_HIGHLIGHTED = 20_000;

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const before = useRef<string[]>([]);
  const blocks = blocksOf(text, before.current);
  before.current = blocks;
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        <Block key={index} text={block} />
      ))}
    </div>
  );
});

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
