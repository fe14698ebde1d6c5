"""Talks to `weir mcp` with the official Python client. Run by test_mcp.py in an environment that has it.

usage: mcp_client.py WEIR FOLDER RUN       prints what it got as JSON
"""
import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(command, folder, run):
    server = StdioServerParameters(command=command, args=["mcp", "--dir", folder], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        about = await session.initialize()
        tools = await session.list_tools()
        got = {"server": about.server_info.name, "version": about.protocol_version, "tools": [tool.name for tool in tools.tools]}

        async def call(tool, **arguments):
            answer = await session.call_tool(tool, arguments)
            return {"error": answer.is_error, "text": answer.content[0].text}

        got["list"] = await call("weir_list")
        got["report"] = await call("weir_report", run=run)
        got["replay"] = await call("weir_replay", run=run, cap="1GiB")
        got["plan"] = await call("weir_plan", run=run, gpu="4GiB")
        got["missing"] = await call("weir_report", run="no-such-run")
        got["option"] = await call("weir_report", run="--html=/tmp/weir-mcp-must-not-exist")
        got["again"] = await call("weir_list")
        print(json.dumps(got))


asyncio.run(main(*sys.argv[1:]))
