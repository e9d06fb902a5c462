// Preloaded (`node --import`): a connection to anywhere but this machine is refused and told on stderr, which the tests
// take for a failure. So nothing here can report home, and nobody would miss it if it tried.

import net from "node:net";

const LOCAL = /^(127\.|::1$|localhost$)/;
const NOBODY = { host: "127.0.0.1", port: 1 }; // where a connection is refused as by any host

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...args) {
  const normal = Array.isArray(args[0]) ? args[0] : net._normalizeArgs(args);
  const { host } = normal[0];
  if (host && !LOCAL.test(host)) {
    process.stderr.write(`outside connection: ${host}\n`);
    Object.assign(normal[0], NOBODY);
  }
  return connect.call(this, normal);
};
