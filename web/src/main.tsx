import "./early";
import { createRoot } from "react-dom/client";
import { enter, route, useConsole } from "./console";
import "./styles.css";
import { App, applyTheme } from "./ui/App";

performance.mark("page begun"); // for the tests: what was asked early was asked before this
applyTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme());
addEventListener("hashchange", () => {
  if (useConsole.getState().access === "in") route();
});
createRoot(document.getElementById("root")!).render(<App />);
void enter();
