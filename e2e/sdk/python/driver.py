"""Runs the Python SDKs for the SDK table.

Standard input: {"base": "http://HOST:PORT", "cases": [{"row", "scenario", "headers", "tools", "max_tokens", "extra"}, …]}
Standard output, one line a case: {"row", "scenario", "text", "tool", "finish", "error"}, as the client of that row saw
the answer: the text and the tool arguments so far, the finish reason, and the exception with the class it has.
"""

import concurrent.futures
import json
import sys

import anthropic
import openai

TOOLS_CHAT = [{"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}]
TOOLS_RESPONSES = [{"type": "function", "name": "write", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}, "strict": False}]
TOOLS_ANTHROPIC = [{"name": "write", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]
MESSAGES = [{"role": "user", "content": "hi"}]


class Seen:
    """What a client has seen so far; it stays when an exception follows."""

    def __init__(self):
        self.text, self.tool, self.finish = "", "", ""


class Clients:
    def __init__(self, base, case):
        headers = case["headers"]
        self.openai = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0, default_headers=headers)
        self.anthropic = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, default_headers=headers)
        self.chat = {"model": "m", "messages": MESSAGES, "max_tokens": case["max_tokens"]}
        self.completions = {"model": "m", "prompt": "hi", "max_tokens": case["max_tokens"]}
        self.responses = {"model": "m", "input": "hi", "max_output_tokens": case["max_tokens"]}
        self.messages = {"model": "m", "messages": MESSAGES, "max_tokens": case["max_tokens"]}
        for body in (self.chat, self.completions, self.responses, self.messages):
            body["extra_body"] = case["extra"]
        if case["tools"]:
            self.chat["tools"], self.responses["tools"], self.messages["tools"] = TOOLS_CHAT, TOOLS_RESPONSES, TOOLS_ANTHROPIC


def chat_choice(choice, part, seen):
    seen.text += part.content or ""
    for call in part.tool_calls or []:
        seen.tool += call.function.arguments or ""
    seen.finish = choice.finish_reason or seen.finish


def chat_create(c, seen):
    for chunk in c.openai.chat.completions.create(stream=True, **c.chat):
        for choice in chunk.choices:
            chat_choice(choice, choice.delta, seen)


def chat_stream(c, seen):
    with c.openai.chat.completions.stream(**c.chat) as stream:
        for event in stream:
            if event.type == "content.delta":
                seen.text += event.delta
            elif event.type == "tool_calls.function.arguments.delta":
                seen.tool += event.arguments_delta
        choice = stream.get_final_completion().choices[0]
        seen.finish = choice.finish_reason or ""


def chat_json(c, seen):
    choice = c.openai.chat.completions.create(**c.chat).choices[0]
    chat_choice(choice, choice.message, seen)


def completions_choice(choice, seen):
    seen.text += choice.text
    seen.finish = choice.finish_reason or seen.finish


def completions_create(c, seen):
    for chunk in c.openai.completions.create(stream=True, **c.completions):
        for choice in chunk.choices:
            completions_choice(choice, seen)


def completions_json(c, seen):
    completions_choice(c.openai.completions.create(**c.completions).choices[0], seen)


def responses_finish(response, seen):
    details = response.incomplete_details
    seen.finish = response.status + (f" {details.reason}" if details else "")


def responses_event(event, seen):
    if event.type == "response.output_text.delta":
        seen.text += event.delta
    elif event.type == "response.function_call_arguments.delta":
        seen.tool += event.delta
    elif event.type in ("response.completed", "response.incomplete", "response.failed"):
        responses_finish(event.response, seen)


def responses_create(c, seen):
    for event in c.openai.responses.create(stream=True, **c.responses):
        responses_event(event, seen)


def responses_stream(c, seen):
    with c.openai.responses.stream(**c.responses) as stream:
        for event in stream:
            responses_event(event, seen)
        responses_finish(stream.get_final_response(), seen)


def responses_json(c, seen):
    response = c.openai.responses.create(**c.responses)
    seen.text = response.output_text
    responses_finish(response, seen)


def messages_event(event, seen):
    if event.type == "content_block_delta":
        seen.text += getattr(event.delta, "text", "")
        seen.tool += getattr(event.delta, "partial_json", "")
    elif event.type == "message_delta":
        seen.finish = event.delta.stop_reason or ""


def messages_create(c, seen):
    for event in c.anthropic.messages.create(stream=True, **c.messages):
        messages_event(event, seen)


def messages_stream(c, seen):
    with c.anthropic.messages.stream(**c.messages) as stream:
        for event in stream:
            messages_event(event, seen)
        seen.finish = stream.get_final_message().stop_reason or ""


def messages_json(c, seen):
    message = c.anthropic.messages.create(**c.messages)
    seen.text = "".join(block.text for block in message.content if block.type == "text")
    seen.finish = message.stop_reason or ""


ROWS = {
    "openai-python chat create": chat_create,
    "openai-python chat .stream": chat_stream,
    "openai-python chat JSON": chat_json,
    "openai-python completions create": completions_create,
    "openai-python completions JSON": completions_json,
    "openai-python responses create": responses_create,
    "openai-python responses .stream": responses_stream,
    "openai-python responses JSON": responses_json,
    "anthropic-python create": messages_create,
    "anthropic-python .stream": messages_stream,
    "anthropic-python JSON": messages_json,
}


def run(base, case):
    seen, error = Seen(), ""
    try:
        ROWS[case["row"]](Clients(base, case), seen)
    except Exception as err:  # whatever it is, it is what the table is about
        error = f"{type(err).__name__}: {err}"
    return {"row": case["row"], "scenario": case["scenario"], **vars(seen), "error": error}


def main():
    job = json.load(sys.stdin)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda case: run(job["base"], case), job["cases"]):
            print(json.dumps(result), flush=True)


main()
