// Plays a conversation with scripts/conformance_ag_ui.py through the JavaScript client of AG-UI, which refuses an event that is out
// of place. Run with: node conformance_ag_ui.mjs MODULE ADDRESS
import { createRequire } from "node:module";

const [, , modules, url] = process.argv;
const { HttpAgent, buildResumeArray } = createRequire(`${modules}/`)("@ag-ui/client");
const agent = new HttpAgent({ url, threadId: "thread" });
const types = [];
const see = { onEvent: ({ event }) => { types.push(event.type); } };
const expect = (what, is) => { if (!is) throw new Error(`${what}: ${JSON.stringify(agent.messages)} ${types}`); };

agent.messages.push({ id: "u1", role: "user", content: "Two cups, please" });
await agent.runAgent({}, see);
expect("two questions", agent.pendingInterrupts.length === 2);
const [cups, pots] = agent.pendingInterrupts;
const responses = {
  [cups.id]: { status: "resolved", payload: { approved: true } },
  [pots.id]: { status: "resolved", payload: { approved: false, reason: "No pots" } },
};
await agent.runAgent({ resume: buildResumeArray(agent.pendingInterrupts, responses) }, see);
expect("no question is left", agent.pendingInterrupts.length === 0);
expect("the answer", agent.messages.at(-1).content === "Two cups are on their way.");
expect("the state", agent.state.status === "completed");

const calls = agent.messages.flatMap((message) => message.toolCalls ?? []);
const results = agent.messages.filter((message) => message.role === "tool").map((message) => message.content);
expect("four calls", calls.length === 4 && calls.every((call) => call.function.arguments === "{}"));
expect("their results", results.sort().join() === "7 cup in stock,denied,ok,rejected");
for (const wanted of ["REASONING_START", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_START", "CUSTOM", "STATE_SNAPSHOT"]) {
  expect(wanted, types.includes(wanted));
}

const returning = new HttpAgent({ url, threadId: "thread" });
await returning.runAgent({}, see);
const shown = (one) => one.messages.filter((message) => message.role !== "reasoning").map((message) => message.content ?? "").join("|");
expect(`the conversation of who comes back: ${shown(returning)}`, shown(returning) === shown(agent));

agent.messages.push({ id: "u2", role: "user", content: "Thank you" });
await agent.runAgent({}, see);
expect("the second answer", agent.messages.at(-1).content === "You are welcome.");
console.log(`${types.length} events, 0 refused`);
