"""Uses the server through the official Python SDK and prints what a client of that SDK saw, as JSON.

The only argument is a JSON object: `mode` (auto, legacy or a revision) and where the server is, either `url` and `bearer`
or `command` and `args`; `vmid` is a container that takes an upload to `dest`, `stopped` a guest that can be planned away;
`reads` are names and arguments of tools to be called with the token `reader`.
"""

import asyncio
import hashlib
import json
import sys
import urllib.request

import httpx2
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

CONTENT = bytes(range(256)) * 1024


async def call(client, name, **arguments):
    """The structured result; its text copy must say the same."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, (name, result)
    assert json.loads(result.content[0].text) == result.structured_content, name
    return result.structured_content


async def refused(client, name, **arguments):
    """The JSON of a result that is an error."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, (name, result)
    return json.loads(result.content[0].text)


def put(url):
    request = urllib.request.Request(url, data=CONTENT, method="PUT")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


async def use(client, job):
    listed = await client.list_tools()
    minted = await call(client, "proxmox_upload_link", cluster="alpha", vmid=job["vmid"], dest=job["dest"])
    receipt = await asyncio.to_thread(put, minted["url"])
    try:
        await client.call_tool("no_such_tool", {})
        unknown = None
    except MCPError as error:
        unknown = error.error.code
    return {
        "protocol": client.protocol_version,
        # A client that is told the revision asks nobody who it talks to.
        "server": client.server_info and client.server_info.name,
        "instructions": client.instructions,
        "tools": {tool.name: tool.annotations.read_only_hint for tool in listed.tools},
        "more_tools": listed.next_cursor,
        "resources": len((await client.list_resources()).resources),
        "prompts": len((await client.list_prompts()).prompts),
        "nodes": await call(client, "get_nodes", cluster="alpha"),
        # Models write numbers as text now and then.
        "vms": await call(client, "get_vms", cluster="alpha", limit="2", fields=["vmid", "name"]),
        "status": await call(client, "get_guest_status", cluster="alpha", vmid=100),
        "protected": await refused(client, "stop_vm", cluster="alpha", vmid=101),
        "absent": await refused(client, "get_guest_status", cluster="alpha", vmid=999),
        "misspelt": await refused(client, "get_guest_status", cluster="alpha", vmid=100, nodes="pve1"),
        "unknown_tool": unknown,
        "scheme": minted["url"].split(":")[0],
        "sent": hashlib.sha256(CONTENT).hexdigest(),
        "receipt": receipt,
        "transfer": await call(client, "get_transfer", link_id=minted["link_id"]),
        "plan": await call(
            client, "plan_proxmox_destroy", cluster="alpha", vmid=job["stopped"], op="destroy_guest"
        ),
    }


async def over_http(job, bearer, work):
    """Does `work` with a client that holds this token."""
    headers = {"Authorization": f"Bearer {bearer}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(job["url"], http_client=http), mode=job["mode"]) as client:
            return await work(client, job)


async def read_all(client, job):
    """Every read; the SDK holds each answer against the tool's output schema."""
    await client.list_tools()
    return {name: await call(client, name, **arguments) for name, arguments in job["reads"]}


async def main(job):
    if "url" in job:
        seen = await over_http(job, job["bearer"], use)
        if "reads" in job:
            seen["reads"] = await over_http(job, job["reader"], read_all)
        return seen
    server = StdioServerParameters(command=job["command"], args=job["args"])
    async with Client(server, mode=job["mode"]) as client:
        return await use(client, job)


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
