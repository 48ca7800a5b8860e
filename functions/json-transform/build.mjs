// node build.mjs [OUT.wasm]: builds the function as a component.

import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { componentize } from '@bytecodealliance/componentize-js';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const out = process.argv[2] ?? here('json-transform.wasm');

const { component } = await componentize({
  sourcePath: here('src/function.js'),
  witPath: here('../../cli/templates/wit'),
  worldName: 'function',
  // The function exports the handler itself; an instance that listens for fetch events serves one call only.
  disableFeatures: ['fetch-event'],
});
await writeFile(out, component);
