"""The official client of the Model Context Protocol against `weir mcp`: prints what it got as JSON.

usage: mcp_client.py WEIR FOLDER CALLS      CALLS is JSON: [[tool, arguments], …]"""
import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(weir, folder, calls):
    server = StdioServerParameters(command=weir, args=["mcp", "--dir", folder], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        tools = await session.list_tools()
        await session.send_ping()
        answers = []
        for tool, arguments in json.loads(calls):
            result = (await session.call_tool(tool, arguments)).model_dump(mode="json", by_alias=True)
            answers.append([result["isError"], result["content"][0]["text"]])
        print(json.dumps({"hello": hello.model_dump(mode="json", by_alias=True), "tools": [tool.name for tool in tools.tools], "answers": answers}))


asyncio.run(main(*sys.argv[1:]))
