// Preloaded (`node --import`): a connection to anywhere but this machine is refused and told on stderr, which the tests
// take for a failure. So nothing here can report home, and nobody would miss it if it tried.

import dns from "node:dns";
import net from "node:net";

const LOCAL = /^(127\.|::1$|localhost$|0\.0\.0\.0$|\[::1\]$)/;

function refuse(host) {
  process.stderr.write(`outside connection: ${host}\n`);
  return Object.assign(new Error(`no connection to ${host}: loopback only`), { code: "ECONNREFUSED" });
}

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  const host = typeof options === "object" ? options?.host : args[1];
  if (typeof host === "string" && !LOCAL.test(host)) {
    this.destroy(refuse(host));
    return this;
  }
  return connect.apply(this, args);
};

const lookup = dns.lookup;
dns.lookup = function (host, ...rest) {
  if (LOCAL.test(host)) return lookup(host, ...rest);
  rest.at(-1)(refuse(host));
};
