// `node validate.mjs FILE...`: what AsyncAPI's own schema and parser say of documents, as JSON by file; 1 if any is wrong.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";
import specs from "@asyncapi/specs";
import Ajv from "ajv";
import addFormats from "ajv-formats";

const ERROR = 0;
const ajv = addFormats(new Ajv({ strict: false, allErrors: true, logger: false }));

function bySchema(document) {
  const official = structuredClone(specs.schemas[document.asyncapi]);
  delete official.definitions?.["http://json-schema.org/draft-07/schema"]; // ajv brings its own
  const valid = ajv.validate(official, document);
  return valid ? [] : ajv.errors.map((e) => ({ severity: ERROR, code: "schema", message: e.message, at: e.instancePath }));
}

async function byParser(text) {
  const { document, diagnostics } = await new Parser().parse(text);
  const found = diagnostics.map((d) => ({ severity: d.severity, code: d.code, message: d.message, at: d.path.join("/") }));
  return { found, channels: document ? document.channels().all().length : 0 };
}

const answers = {};
for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, "utf8");
  const { found, channels } = await byParser(text);
  answers[file] = { channels, found: [...bySchema(JSON.parse(text)), ...found] };
}
console.log(JSON.stringify(answers));
process.exitCode = Object.values(answers).some((a) => a.found.some((f) => f.severity === ERROR)) ? 1 : 0;
