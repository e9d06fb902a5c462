// One scenario against a running server: `node run.mjs SCENARIO BASE_URL JSON` prints what the client made of it as JSON.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [scenario, baseURL, asked] = process.argv.slice(2);
const { prompt, image } = JSON.parse(asked);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0, defaultHeaders: { Authorization: null } });
const chart = {
  type: "function",
  function: {
    name: "draw_chart",
    description: "Draws a chart in the client.",
    parameters: { type: "object", properties: { title: { type: "string" } } },
  },
};

const scenarios = {
  async chat() {
    const made = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: prompt }] });
    return { text: made.choices[0].message.content, finish: made.choices[0].finish_reason, usage: made.usage };
  },

  async stream() {
    const stream = client.chat.completions.stream({
      model: "m",
      messages: [{ role: "user", content: prompt }],
      stream_options: { include_usage: true },
    });
    let deltas = 0;
    for await (const chunk of stream) deltas += chunk.choices[0]?.delta?.content ? 1 : 0;
    const made = await stream.finalChatCompletion();
    return { text: made.choices[0].message.content, deltas, usage: made.usage };
  },

  async tools() {
    const messages = [{ role: "user", content: prompt }];
    const calls = [];
    for (;;) {
      const { choices } = await client.chat.completions.create({ model: "m", messages, tools: [chart] });
      const { message } = choices[0];
      if (choices[0].finish_reason !== "tool_calls") return { text: message.content, calls };
      messages.push(message);
      for (const call of message.tool_calls) {
        calls.push(JSON.parse(call.function.arguments).title);
        messages.push({ role: "tool", tool_call_id: call.id, content: `drawn ${calls.at(-1)}` });
      }
    }
  },

  async image() {
    const content = [{ type: "text", text: prompt }, { type: "image_url", image_url: { url: image } }];
    const made = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content }] });
    return { text: made.choices[0].message.content };
  },

  async failure() {
    try {
      const stream = await client.chat.completions.create({
        model: "m",
        messages: [{ role: "user", content: prompt }],
        stream: true,
      });
      for await (const _ of stream);
    } catch (error) {
      return { code: error.code, name: error.constructor.name };
    }
    return {};
  },

  async models() {
    const list = await client.models.list();
    return { ids: list.data.map((model) => model.id), one: (await client.models.retrieve(list.data[0].id)).id };
  },

  async responses() {
    const first = await client.responses.create({ model: "m", input: prompt });
    const stream = client.responses.stream({ model: "m", input: "And then?", previous_response_id: first.id });
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    const second = await stream.finalResponse();
    const kept = await client.responses.retrieve(second.id);
    await client.responses.delete(second.id);
    return { first: first.output_text, kinds, second: second.output_text, kept: kept.output_text };
  },

  async response_tools() {
    const tools = [{ type: "function", strict: false, ...chart.function }];
    let made = await client.responses.create({ model: "m", input: prompt, tools });
    const calls = made.output.filter((item) => item.type === "function_call");
    const input = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "drawn" }));
    made = await client.responses.create({ model: "m", input, tools, previous_response_id: made.id });
    return { text: made.output_text, calls: calls.map((call) => JSON.parse(call.arguments).title) };
  },

  async vercel() {
    const provider = createOpenAICompatible({ name: "hermes", baseURL, includeUsage: true });
    const titles = [];
    const tools = {
      draw_chart: tool({
        description: "Draws a chart in the client.",
        inputSchema: z.object({ title: z.string() }),
        execute: async ({ title }) => {
          titles.push(title);
          return { drawn: title };
        },
      }),
    };
    const whole = await generateText({ model: provider("m"), prompt, tools, stopWhen: stepCountIs(5) });
    const stream = streamText({ model: provider("m"), prompt: `${prompt} again`, tools, stopWhen: stepCountIs(5) });
    const kinds = new Set();
    for await (const part of stream.fullStream) {
      kinds.add(part.type);
      if (part.type === "error") throw part.error;
    }
    return {
      text: whole.text,
      steps: whole.steps.length,
      titles,
      streamed: await stream.text,
      kinds: [...kinds],
      usage: whole.usage.totalTokens,
    };
  },
};

console.log(JSON.stringify(await scenarios[scenario]()));
