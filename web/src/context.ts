import { createContext, useContext } from "react";
import { useStore } from "zustand";
import type { OpenThread, ThreadState } from "./thread";

export const ThreadContext = createContext<OpenThread | null>(null);

export function useOpenThread(): OpenThread {
  const thread = useContext(ThreadContext);
  if (!thread) throw new Error("no open thread");
  return thread;
}

export function useThread<T>(selector: (state: ThreadState) => T): T {
  return useStore(useOpenThread().store, selector);
}
