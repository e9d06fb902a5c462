export default { server: { proxy: { "/agui": process.env.HERMES_URL ?? "http://127.0.0.1:8650" } } };
