// Shared by the scripts here: which client version, its warnings, and JSON in and out.

const PACKAGES = { 1: "agui-client-1", 0: "agui-client-0" };

export async function loadClient(version) {
  const name = PACKAGES[version];
  if (!name) throw new Error(`version must be "1" or "0", not ${JSON.stringify(version)}`);
  return import(name);
}

// The clients report what they strip or cannot apply on the console, so whatever is printed there is a result.
export function captureConsole(onText) {
  for (const level of ["warn", "error"]) {
    console[level] = (...parts) => onText(parts.map(text).join(" "));
  }
  process.on("unhandledRejection", (error) => onText(`unhandled rejection: ${text(error)}`));
}

function text(part) {
  if (part instanceof Error) return `${part.name}: ${part.message}`;
  return typeof part === "string" ? part : JSON.stringify(part);
}

export async function readStdin() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

// Sockets of a rejected stream stay open, so the process ends by itself only when told to.
export function finish() {
  process.stdout.write("", () => process.exit(0));
}
