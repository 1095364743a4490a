"""Sends distinct requests through openai-python with its default retries, evenly over a while.

Arguments: BASE COUNT SECONDS. Standard output: one JSON object {"ok": N, "failed": N}.
"""

import asyncio
import json
import sys

import openai


async def main(base, count, seconds):
    client = openai.AsyncOpenAI(base_url=base + "/v1", api_key="tenant", timeout=30)

    async def one(i):
        await asyncio.sleep(i * seconds / count)
        try:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": f"question {i}"}], extra_headers={"x-budget-ms": "9000"})
            return True
        except openai.OpenAIError:
            return False

    done = await asyncio.gather(*(one(i) for i in range(count)))
    print(json.dumps({"ok": sum(done), "failed": count - sum(done)}))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
