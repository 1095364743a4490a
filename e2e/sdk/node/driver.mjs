// Runs the JavaScript SDKs for the SDK table.
//
// Standard input: {"base": "http://HOST:PORT", "cases": [{"row", "scenario", "headers", "tools", "max_tokens", "extra"}, …]}
// Standard output, one line a case: {"row", "scenario", "text", "tool", "finish", "error"}, as the client of that row
// saw the answer: the text and the tool arguments so far, the finish reason, and the error with the class it has.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";

const schema = { type: "object", properties: { path: { type: "string" } } };
const toolsChat = [{ type: "function", function: { name: "write", parameters: schema } }];
const toolsResponses = [{ type: "function", name: "write", parameters: schema, strict: false }];
const toolsAnthropic = [{ name: "write", input_schema: schema }];
const toolsAI = { write: tool({ inputSchema: jsonSchema(schema) }) };
const messages = [{ role: "user", content: "hi" }];

const given = (c, tools) => c.tools ? { tools } : {};
const openai = (c) => new OpenAI({ baseURL: c.base + "/v1", apiKey: "none", maxRetries: 0, defaultHeaders: c.headers });
const anthropic = (c) => new Anthropic({ baseURL: c.base, apiKey: "none", maxRetries: 0, defaultHeaders: c.headers });
const ollama = (c) => new Ollama({ host: c.base, headers: c.headers });
const langchain = (c) => new ChatOpenAI({ model: "m", apiKey: "none", maxRetries: 0, maxTokens: c.max_tokens, useResponsesApi: false,
  configuration: { baseURL: c.base + "/v1", defaultHeaders: c.headers } }).bindTools(c.tools ? toolsChat : []);

const chatBody = (c) => ({ model: "m", messages, ...given(c, toolsChat), max_tokens: c.max_tokens, ...c.extra });
const completionsBody = (c) => ({ model: "m", prompt: "hi", max_tokens: c.max_tokens, ...c.extra });
const responsesBody = (c) => ({ model: "m", input: "hi", ...given(c, toolsResponses), max_output_tokens: c.max_tokens, ...c.extra });
const messagesBody = (c) => ({ model: "m", messages, ...given(c, toolsAnthropic), max_tokens: c.max_tokens, ...c.extra });
const ollamaBody = (c) => ({ model: "m", messages, options: { num_predict: c.max_tokens } });

function chatChoice(choice, part, seen) {
  seen.text += part.content ?? "";
  for (const call of part.tool_calls ?? []) seen.tool += call.function?.arguments ?? "";
  seen.finish = choice.finish_reason ?? seen.finish;
}

async function chatCreate(c, seen) {
  for await (const chunk of await openai(c).chat.completions.create({ ...chatBody(c), stream: true })) {
    for (const choice of chunk.choices) chatChoice(choice, choice.delta, seen);
  }
}

async function chatStream(c, seen) {
  const stream = openai(c).chat.completions.stream(chatBody(c));
  stream.on("content", (delta) => { seen.text += delta; });
  stream.on("tool_calls.function.arguments.delta", (e) => { seen.tool += e.arguments_delta; });
  seen.finish = (await stream.finalChatCompletion()).choices[0].finish_reason ?? "";
}

async function chatJSON(c, seen) {
  const choice = (await openai(c).chat.completions.create(chatBody(c))).choices[0];
  chatChoice(choice, choice.message, seen);
}

function completionsChoice(choice, seen) {
  seen.text += choice.text;
  seen.finish = choice.finish_reason ?? seen.finish;
}

async function completionsCreate(c, seen) {
  for await (const chunk of await openai(c).completions.create({ ...completionsBody(c), stream: true })) {
    for (const choice of chunk.choices) completionsChoice(choice, seen);
  }
}

async function completionsJSON(c, seen) {
  completionsChoice((await openai(c).completions.create(completionsBody(c))).choices[0], seen);
}

function responsesFinish(response, seen) {
  seen.finish = response.status + (response.incomplete_details ? " " + response.incomplete_details.reason : "");
}

function responsesEvent(event, seen) {
  if (event.type === "response.output_text.delta") seen.text += event.delta;
  if (event.type === "response.function_call_arguments.delta") seen.tool += event.delta;
  if (["response.completed", "response.incomplete", "response.failed"].includes(event.type)) responsesFinish(event.response, seen);
}

async function responsesCreate(c, seen) {
  for await (const event of await openai(c).responses.create({ ...responsesBody(c), stream: true })) responsesEvent(event, seen);
}

async function responsesStream(c, seen) {
  const stream = openai(c).responses.stream(responsesBody(c));
  for await (const event of stream) responsesEvent(event, seen);
  const response = await stream.finalResponse();
  seen.text = response.output_text; // the helper's own sum of the answer
  responsesFinish(response, seen);
}

async function responsesJSON(c, seen) {
  const response = await openai(c).responses.create(responsesBody(c));
  seen.text = response.output_text;
  responsesFinish(response, seen);
}

function messagesEvent(event, seen) {
  if (event.type === "content_block_delta") {
    seen.text += event.delta.text ?? "";
    seen.tool += event.delta.partial_json ?? "";
  }
  if (event.type === "message_delta") seen.finish = event.delta.stop_reason ?? "";
}

async function messagesCreate(c, seen) {
  for await (const event of await anthropic(c).messages.create({ ...messagesBody(c), stream: true })) messagesEvent(event, seen);
}

async function messagesStream(c, seen) {
  const stream = anthropic(c).messages.stream(messagesBody(c));
  for await (const event of stream) messagesEvent(event, seen);
  seen.finish = (await stream.finalMessage()).stop_reason ?? "";
}

async function messagesJSON(c, seen) {
  const message = await anthropic(c).messages.create(messagesBody(c));
  seen.text = message.content.map((block) => block.text ?? "").join("");
  seen.finish = message.stop_reason ?? "";
}

const settings = (c, path) => ({ baseURL: c.base + path, apiKey: "none", headers: c.headers, name: "brownout" });
const models = {
  openai: (c) => createOpenAI(settings(c, "/v1")).chat("m"),
  responses: (c) => createOpenAI(settings(c, "/v1")).responses("m"),
  compatible: (c) => createOpenAICompatible(settings(c, "/v1"))("m"),
  anthropic: (c) => createAnthropic(settings(c, "/v1"))("m"),
};

const aiStream = (model) => async (c, seen) => {
  const { fullStream } = streamText({ model: models[model](c), messages, ...given(c, toolsAI), maxRetries: 0, maxOutputTokens: c.max_tokens, onError() {} });
  for await (const part of fullStream) {
    if (part.type === "text-delta") seen.text += part.text;
    if (part.type === "tool-input-delta") seen.tool += part.delta;
    if (part.type === "finish") seen.finish = part.finishReason;
    if (part.type === "error") seen.failed ??= part.error;
  }
};

const aiText = (model) => async (c, seen) => {
  const result = await generateText({ model: models[model](c), messages, ...given(c, toolsAI), maxRetries: 0, maxOutputTokens: c.max_tokens });
  seen.text = result.text;
  seen.finish = result.finishReason;
};

function langchainMessage(message, seen) {
  seen.text += message.content;
  for (const call of message.tool_call_chunks ?? []) seen.tool += call.args ?? "";
  seen.finish = message.response_metadata.finish_reason ?? seen.finish;
}

async function langchainStream(c, seen) {
  for await (const chunk of await langchain(c).stream("hi")) langchainMessage(chunk, seen);
}

async function langchainInvoke(c, seen) {
  langchainMessage(await langchain(c).invoke("hi"), seen);
}

async function ollamaStream(c, seen) {
  for await (const part of await ollama(c).chat({ ...ollamaBody(c), stream: true })) {
    seen.text += part.message.content;
    seen.tool += part.message.tool_calls ? JSON.stringify(part.message.tool_calls[0].function.arguments) : "";
    seen.finish = part.done_reason ?? seen.finish;
  }
}

async function ollamaJSON(c, seen) {
  const part = await ollama(c).chat(ollamaBody(c));
  seen.text = part.message.content;
  seen.finish = part.done_reason ?? "";
}

const rows = {
  "openai-node chat create": chatCreate,
  "openai-node chat .stream": chatStream,
  "openai-node chat JSON": chatJSON,
  "openai-node completions create": completionsCreate,
  "openai-node completions JSON": completionsJSON,
  "openai-node responses create": responsesCreate,
  "openai-node responses .stream": responsesStream,
  "openai-node responses JSON": responsesJSON,
  "anthropic-ts create": messagesCreate,
  "anthropic-ts .stream": messagesStream,
  "anthropic-ts JSON": messagesJSON,
  "ai openai chat streamText": aiStream("openai"),
  "ai openai responses streamText": aiStream("responses"),
  "ai openai-compatible streamText": aiStream("compatible"),
  "ai anthropic streamText": aiStream("anthropic"),
  "ai openai chat generateText": aiText("openai"),
  "langchain-js stream": langchainStream,
  "langchain-js invoke": langchainInvoke,
  "ollama-js stream": ollamaStream,
  "ollama-js JSON": ollamaJSON,
};

const describe = (err) => err === undefined ? "" : err instanceof Error ? `${err.constructor.name}: ${err.message}` : `${typeof err}: ${JSON.stringify(err)}`;

async function run(base, job) {
  const seen = { text: "", tool: "", finish: "" };
  let error;
  try {
    await rows[job.row]({ ...job, base }, seen);
  } catch (err) {
    error = err;
  }
  const { failed, ...rest } = seen;
  return { row: job.row, scenario: job.scenario, ...rest, error: describe(error ?? failed) };
}

console.log = console.error; // some clients log; standard output is ours

let input = "";
for await (const piece of process.stdin) input += piece;
const { base, cases } = JSON.parse(input);
const worker = async () => {
  for (let job = cases.shift(); job; job = cases.shift()) process.stdout.write(JSON.stringify(await run(base, job)) + "\n");
};
await Promise.all(Array.from({ length: 8 }, worker));
