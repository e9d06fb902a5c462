// The page's own address stays in the request (`changeOrigin`): the gateway then sees one origin and needs no
// `agui.cors_origins`.
const gateway = { target: process.env.HERMES_URL ?? "http://127.0.0.1:8650", changeOrigin: false };

export default { server: { proxy: { "/agui": gateway } } };
