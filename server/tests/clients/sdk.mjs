// Uses the server through the official TypeScript SDKs and prints what a client of theirs saw, as JSON.
//
// Read from standard input, so that packages are found from the working directory. The only argument is a JSON object: `sdk`
// (1 or 2), for 2 also `mode` (auto, legacy or a revision), and where the server is, either `url` and `bearer` or
// `command` and `args`.
const job = JSON.parse(process.argv.at(-1));
const one = '@modelcontextprotocol/sdk/client';
const two = '@modelcontextprotocol/client';
const { Client } = await import(job.sdk === 1 ? `${one}/index.js` : two);

async function transport() {
  if (job.command) {
    const { StdioClientTransport } = await import(job.sdk === 1 ? `${one}/stdio.js` : `${two}/stdio`);
    return new StdioClientTransport({ command: job.command, args: job.args, stderr: 'ignore' });
  }
  const { StreamableHTTPClientTransport } = await import(job.sdk === 1 ? `${one}/streamableHttp.js` : two);
  const requestInit = { headers: { Authorization: `Bearer ${job.bearer}` } };
  return new StreamableHTTPClientTransport(new URL(job.url), { requestInit });
}

const modes = { auto: 'auto', legacy: 'legacy' };
const negotiation = { versionNegotiation: { mode: modes[job.mode] ?? { pin: job.mode } } };
const client = new Client({ name: 'test', version: '0' }, job.sdk === 1 ? {} : negotiation);
const line = await transport();
await client.connect(line);

const call = (name, args) => client.callTool({ name, arguments: args });
const listed = await client.listTools();
const nodes = await call('get_nodes', { cluster: 'alpha' });
const status = await call('get_guest_status', { cluster: 'alpha', vmid: 100 });
const refused = await call('get_guest_status', { cluster: 'alpha', vmid: 999 });
let unknown = null;
try {
  await call('no_such_tool', {});
} catch (error) {
  unknown = error.code;
}
const seen = {
  protocol: client.getNegotiatedProtocolVersion?.() ?? line.protocolVersion ?? null,
  tools: listed.tools.map((tool) => tool.name),
  resources: (await client.listResources()).resources.length,
  prompts: (await client.listPrompts()).prompts.length,
  nodes: nodes.structuredContent,
  text: JSON.parse(nodes.content[0].text),
  status: status.structuredContent,
  refused: { is_error: refused.isError, message: JSON.parse(refused.content[0].text).message },
  unknown,
};
await client.close();
console.log(JSON.stringify(seen));
