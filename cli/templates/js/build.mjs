// Builds the function: makes {{name}}.wasm.

import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { componentize } from '@bytecodealliance/componentize-js';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const { component } = await componentize({
  sourcePath: here('src/function.js'),
  witPath: here('wit'),
  worldName: 'function',
  // The function exports the handler itself; an instance that listens for fetch events serves one call only.
  disableFeatures: ['fetch-event'],
});
await writeFile(here('{{name}}.wasm'), component);
console.log('built {{name}}.wasm; deploy it: fdn deploy {{name}} {{name}}.wasm');
