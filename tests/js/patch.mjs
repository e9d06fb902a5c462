// Applies patches to documents with the library that the clients use, as they use it.
//
// stdin: a list of {document, patches: [operations, …]}; stdout: a list of {document} or {error}.

import { createRequire } from "node:module";
import { finish, readStdin } from "./lib.mjs";

const { applyPatch } = createRequire(import.meta.url)("fast-json-patch");

const results = (await readStdin()).map(({ document, patches }) => {
  try {
    for (const patch of patches) document = applyPatch(document, patch, true, false).newDocument;
    return { document };
  } catch (error) {
    return { error: `${error.name}: ${String(error.message).slice(0, 500)}` };
  }
});
process.stdout.write(JSON.stringify(results) + "\n");
finish();
