"""Uses the idempotency option of openai-python against two replicas that share a store.

Arguments: HERE THERE, two base addresses. Standard output: one JSON object {"twice": [TEXT, TEXT], "elsewhere": TEXT,
"seconds": N}: one request twice HERE, and one THERE while the same is in flight HERE, with the SDK's own retries.
"""

import json
import sys
import threading
import time

import openai
from openai.types.chat import ChatCompletion


def ask(base, key, script):
    client = openai.OpenAI(base_url=base + "/v1", api_key="tenant", default_headers={"x-script": script, "host": "llm.test"})
    client._idempotency_header = "Idempotency-Key"  # off in the SDK as it comes; then its option and its retries use it
    body = {"model": "m", "messages": [{"role": "user", "content": key}]}
    done = client.post("/chat/completions", cast_to=ChatCompletion, body=body, options={"idempotency_key": key})
    return done.choices[0].message.content


def main(here, there):
    twice = [ask(here, "twice", "fast") for _ in range(2)]
    first = threading.Thread(target=ask, args=(here, "elsewhere", "slow"))
    first.start()
    time.sleep(0.2)  # it is in flight by now, for 600 ms
    began = time.monotonic()
    elsewhere = ask(there, "elsewhere", "fast")
    seconds = time.monotonic() - began
    first.join()
    print(json.dumps({"twice": twice, "elsewhere": elsewhere, "seconds": seconds}))


main(*sys.argv[1:])
