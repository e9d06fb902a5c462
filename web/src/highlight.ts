/** Colours for code, in a chunk of its own. */
import { toJsxRuntime } from "hast-util-to-jsx-runtime";
import { common, createLowlight } from "lowlight";
import type { ReactNode } from "react";
import { Fragment, jsx, jsxs } from "react/jsx-runtime";

const lowlight = createLowlight(common);

export function highlight(text: string, language: string): ReactNode {
  if (!lowlight.registered(language)) return text;
  return toJsxRuntime(lowlight.highlight(language, text), { Fragment, jsx, jsxs }) as ReactNode;
}
